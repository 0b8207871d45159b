"""A conversation as the page's transcript wants it: nested dicts of safe HTML. Pure.

`static/transcript.js` compares this with what it shows and replaces only the blocks that changed.
All text of users and models is escaped here or in `marked`.
"""

from __future__ import annotations

from html import escape
from typing import Any

from ssr_chat.conversation import Conversation, Exchange
from ssr_chat.figures import Figure, Part, count, duration, figures, origin_bar, phase_bar
from ssr_chat.reply import Phase, Reply
from ssr_local.errors import ContextOverflow, SSRError

View = dict[str, Any]


def conversation_view(conversation: Conversation) -> View:
    return {"exchanges": [exchange_view(exchange) for exchange in conversation.exchanges]}


def exchange_view(exchange: Exchange) -> View:
    """One user message and its reply."""
    reply = exchange.reply
    return {
        "id": exchange.id,
        "phase": reply.phase.value,
        "user": escape(exchange.text),
        "status": escape(status_line(reply)),
        "thought": thought_view(reply),
        "ghost": ghost_view(reply),
        "answer": reply.answer.blocks(),
        "notice": notice_html(reply),
        "figures": figures_html(reply),
    }


def status_line(reply: Reply) -> str:
    """What is happening, for as long as nothing of it can be seen."""
    if reply.phase is Phase.WAITING:
        return reply.waiting_for or "Reading the prompt"
    if reply.phase is Phase.READING:
        share = reply.prompt_read / reply.prompt_total if reply.prompt_total else 0.0
        return f"Reading the prompt, {share:.0%}" if share < 1 else "Reading the prompt"
    return ""


def thought_view(reply: Reply) -> View | None:
    thought = reply.thought
    if thought.began is None:
        return None
    live = thought.ended is None
    lasted = duration((reply.now if thought.ended is None else thought.ended) - thought.began)
    why = {"budget": ", budget spent", "answer-now": ", cut short by you"}.get(
        thought.end or "", ""
    )
    verb = "Thinking" if live else "Thought"
    return {
        "live": live,
        "title": f"{verb} for {lasted}",
        "detail": f"{count(thought.tokens, 'token')}{why}",
        "blocks": thought.document.blocks(),
    }


def ghost_view(reply: Reply) -> View | None:
    """The draft, until the answer takes its place."""
    draft = reply.draft
    if draft is None or reply.answer or not reply.phase.running:
        return None
    blocks = draft.shown().blocks()
    if not blocks:
        return None
    times = "" if reply.drafts == 1 else f", refreshed {count(reply.drafts - 1, 'time')}"
    return {
        "detail": f"as of {count(draft.checkpoint, 'thinking token')}{times}",
        "blocks": blocks,
    }


def notice_html(reply: Reply) -> str:
    """Why a reply is not what one expects: an error, a stop, a limit."""
    if reply.error:
        back = '<p class="ended">Your message is back in the box below.</p>'
        return error_html(reply.error) + (back if reply.refused else "")
    if reply.stopped:
        return '<p class="ended">Stopped</p>'
    if reply.finished and reply.finished.finish_reason == "length":
        return '<p class="ended">Ended by a limit: max tokens, or the context is full</p>'
    if reply.finished and not reply.answer:
        return '<p class="ended">The model ended without an answer</p>'
    return ""


def error_html(error: SSRError) -> str:
    title, advice = _explain(error)
    return (
        '<div class="error" role="alert">'
        f"<strong>{escape(title)}</strong><p>{with_code(str(error))}</p>"
        f"{f'<p>{escape(advice)}</p>' if advice else ''}</div>"
    )


def figures_html(reply: Reply) -> str:
    shown = "".join(_figure(figure) for figure in figures(reply))
    bars = _bar("answer", origin_bar(reply)) + _bar("time", phase_bar(reply))
    return f'<div class="row">{shown}</div>{bars}' if shown or bars else ""


def _figure(figure: Figure) -> str:
    return (
        f'<span class="figure" title="{escape(figure.title)}">'
        f"<b>{escape(figure.value)}</b> {escape(figure.name)}</span>"
    )


def _bar(name: str, parts: list[Part]) -> str:
    if not parts:
        return ""
    words = f"{name}: " + " · ".join(escape(part.label) for part in parts)
    pieces = "".join(
        f'<i class="{part.kind}" style="flex-grow:{part.share:.4f}"></i>' for part in parts
    )
    return (
        f'<div class="bar"><span class="pieces" aria-hidden="true">{pieces}</span>'
        f'<span class="words">{words}</span></div>'
    )


def _explain(error: SSRError) -> tuple[str, str]:
    """A headline, and what to do beyond what the message says."""
    if isinstance(error, ContextOverflow):
        return (
            "The conversation is too long for the model",
            "Begin a new chat, or start ssr-chat with a larger --n-ctx.",
        )
    names = {
        "ModelNotFound": "The model is not here",
        "ModelCorrupt": "The model's file is damaged",
        "UnsupportedModel": "This model can't run here",
        "DownloadFailed": "The model could not be fetched",
        "InvalidRequest": "A setting does not fit this model",
        "EngineClosed": "The model was unloaded",
    }
    return names.get(type(error).__name__, "The engine failed"), ""


def with_code(message: str) -> str:
    """Escaped, with `backticked` commands as code."""
    parts = escape(message).split("`")
    if len(parts) % 2 == 0:
        return escape(message)
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
