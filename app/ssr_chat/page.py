"""The window: components, and which function answers to which.

Only wiring: what is shown comes from `view` and `host_view`, what happens from `session` and
`host`. Looks and key strokes are in `static/`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from importlib import resources
from typing import Any

import gradio as gr

from ssr_chat.controls import (
    DEFAULT_BUDGET,
    LARGEST_BUDGET,
    POLICY_CHOICES,
    THINKING_CHOICES,
    Controls,
)
from ssr_chat.host import EngineHost
from ssr_chat.host_view import banner_html, status_html
from ssr_chat.session import Session
from ssr_chat.view import View, conversation_view
from ssr_local.engine import ModelInfo

NEWS_SECONDS = 1.0
"""How often a page asks for news of the model. A stream would not do: browsers open no more than
six connections to a server, for all tabs together, and Gradio holds one for each tab already."""

Update = tuple[View | dict[str, Any], str | dict[str, Any]]
"""For the transcript and the message box; a dict from Gradio leaves a component as it is."""


def static(name: str) -> str:
    """The text of one of the package's own files."""
    return (resources.files("ssr_chat") / "static" / name).read_text(encoding="utf-8")


def build_page(host: EngineHost, models: Callable[[], list[str]]) -> gr.Blocks:
    """The window on a host; `models` names what can be chosen."""
    page: gr.Blocks
    with gr.Blocks(title="SSR Local", analytics_enabled=False, fill_width=True) as page:
        session = gr.State(Session())
        with gr.Row(elem_id="top"):
            _markup("brand.html", elem_id="brand")
            model = _model_choice()
            status = gr.HTML(elem_id="status", apply_default_css=False)
            _markup("tools.html", js_on_load=static("tools.js"), elem_id="tools")
            new_chat = gr.Button("New chat", elem_id="new-chat", size="sm")
        banner = gr.HTML(elem_id="banner", apply_default_css=False)
        transcript = gr.HTML(
            value=conversation_view(Session().conversation),
            html_template=static("transcript.html"),
            js_on_load=static("transcript.js"),
            apply_default_css=False,
            elem_id="transcript",
        )
        with gr.Column(elem_id="composer"):
            with gr.Column(elem_id="card"):
                message = _message_box()
                with gr.Row(elem_id="actions"):
                    thinking, policy = _main_controls()
                    answer_now = gr.Button("Answer now", elem_id="answer-now", size="sm")
                    stop = gr.Button("Stop", elem_id="stop", size="sm")
                    send = gr.Button("Send", elem_id="send", size="sm")
            settings = _settings()

        def news(tab: Session) -> Any:
            """What changed about the model since the page was last told."""
            now = host.status
            if now == tab.seen:
                return gr.skip()
            tab.seen = now
            return status_html(now), banner_html(now), _choice(now.info, models())

        async def ask(tab: Session, text: str, *values: Any) -> AsyncGenerator[Update, None]:
            async for update in answer(tab, text, _controls(values), host):
                yield update

        clock = gr.Timer(NEWS_SECONDS)
        gr.on([page.load, clock.tick], news, session, [status, banner, model], **_AT_ONCE)
        controls = [thinking, policy, *settings]
        gr.on(
            [send.click, message.submit],
            ask,
            [session, message, *controls],
            [transcript, message],
            trigger_mode="once",
            **_STREAMING,
        )
        stop.click(Session.stop, session, **_AT_ONCE)
        answer_now.click(Session.answer_now, session, **_AT_ONCE)
        new_chat.click(start_over, session, transcript, **_AT_ONCE)
        model.input(host.switch, model, **_AT_ONCE)
    return page


async def answer(
    tab: Session, text: str, controls: Controls, host: EngineHost
) -> AsyncGenerator[Update, None]:
    """Updates of the transcript and the message box while a message is answered."""
    if not text.strip() or tab.running:
        yield gr.skip(), gr.skip()
        return
    conversation = tab.conversation
    box: str | dict[str, Any] = ""
    async with aclosing(tab.ask(text.strip(), controls, host)) as updates:
        async for exchange in updates:
            if tab.conversation is not conversation:
                # The user began a new chat. Gradio repeats the last update at the end.
                yield conversation_view(tab.conversation), gr.skip()
                return
            if exchange.reply.refused:
                box = text
            yield conversation_view(conversation), box
            box = gr.skip()


def start_over(tab: Session) -> View:
    tab.start_over()
    return conversation_view(tab.conversation)


_HIDDEN: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
_AT_ONCE: dict[str, Any] = {"queue": False} | _HIDDEN


_STREAMING: dict[str, Any] = {"concurrency_limit": None} | _HIDDEN
"""For a function that runs as long as there is news; tabs don't wait for each other in it."""


def _controls(values: tuple[Any, ...]) -> Controls:
    names = ("thinking", "policy", "budget", "temperature", "top_p", "seed", "max_tokens")
    return Controls(**dict(zip(names, values, strict=True)))


def _choice(info: ModelInfo | None, present: list[str]) -> dict[str, Any]:
    """The model choice with what is loaded selected, which may be a file outside the registry."""
    choices = [(name, name) for name in present]
    if info is None:
        return gr.update(choices=choices)
    if info.name in present:
        return gr.update(choices=choices, value=info.name)
    path = str(info.path)
    return gr.update(choices=[(info.name, path), *choices], value=path)


def _markup(name: str, *, elem_id: str, js_on_load: str | None = None) -> gr.HTML:
    return gr.HTML(static(name), js_on_load=js_on_load, apply_default_css=False, elem_id=elem_id)


def _model_choice() -> gr.Dropdown:
    return gr.Dropdown(
        [], label="Model", show_label=False, container=False, elem_id="model", interactive=True
    )


def _message_box() -> gr.Textbox:
    return gr.Textbox(
        label="Message",
        show_label=False,
        container=False,
        placeholder="Ask something (Enter sends, Esc stops)",
        lines=1,
        max_lines=10,
        autofocus=True,
        elem_id="message",
    )


def _main_controls() -> tuple[gr.Dropdown, gr.Dropdown]:
    return (
        _plain_choice("Thinking", THINKING_CHOICES, "auto", "thinking"),
        _plain_choice("Speculation", POLICY_CHOICES, "ssr", "policy"),
    )


def _plain_choice(
    label: str, choices: list[tuple[str, str]], value: str, elem_id: str
) -> gr.Dropdown:
    return gr.Dropdown(
        choices,
        value=value,
        label=label,
        show_label=False,
        container=False,
        filterable=False,
        elem_id=elem_id,
    )


def _settings() -> tuple[gr.Slider, gr.Textbox, gr.Textbox, gr.Textbox, gr.Textbox]:
    with gr.Accordion("Settings", open=False, elem_id="settings"):
        budget = gr.Slider(
            0,
            LARGEST_BUDGET,
            value=DEFAULT_BUDGET,
            step=64,
            label="Thinking budget (tokens); when it is spent, the answer begins",
            buttons=[],
            elem_id="budget",
        )
        with gr.Row():
            return (
                budget,
                _field("Temperature", "recommended", "temperature"),
                _field("Top-p", "recommended", "top-p"),
                _field("Seed", "new each time", "seed"),
                _field("Max tokens", "no limit", "max-tokens"),
            )


def _field(label: str, placeholder: str, elem_id: str) -> gr.Textbox:
    """Not gr.Number, which turns an empty field into 0."""
    return gr.Textbox(label=label, placeholder=placeholder, max_lines=1, elem_id=elem_id)
