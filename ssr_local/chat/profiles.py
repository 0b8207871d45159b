"""How a model thinks, as data: its markers, what closes them, how thinking is switched.

Everything is read off the text that a template renders for a few probes, with thinking on and off,
and with an earlier turn that thought; never off a model's name. To teach a new family, add its
switch to `SWITCHES`, or its markers to `_TAG`; every rule here must hold for all families.

Sources: the templates that llama.cpp carries in models/templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ssr_local.chat.template import CHATML, ChatTemplate
from ssr_local.errors import InvalidRequest, UnsupportedModel
from ssr_local.request import Message, Thinking

THINK_INSTRUCTION = (
    "First, think this through step by step: what exactly is asked, what could go wrong, and how "
    "you will do it. For now write down only your thoughts. Do not write the final answer yet; you "
    "will be asked for it next."
)
"""Added to the last user turn by the prompted profile."""

ANSWER_INSTRUCTION = (
    "Now write the complete final answer, based on your thoughts. Write only the answer itself, in "
    "the form that was asked for, without repeating your thoughts or referring to them."
)
"""The prompted profile's second user turn."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A template variable that turns thinking on and off."""

    on: Mapping[str, Any]
    off: Mapping[str, Any]


SWITCHES = (
    Switch({"enable_thinking": True}, {"enable_thinking": False}),  # Qwen3, GLM, Nemotron, ...
    Switch({"thinking": True}, {"thinking": False}),  # DeepSeek-V3.1's own template
)

_TAG = re.compile(r"<((?:\w+:)?think(?::\w+)?)>")
"""`<think>`, `<seed:think>`, `<mm:think>`, ...; closed by the same with a slash."""

_QUESTION, _THOUGHT, _ANSWER = "PROBE-QUESTION", "PROBE-THOUGHT", "PROBE-ANSWER"

_PROBE_SECONDS = 0.5

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ReasoningProfile:
    """One way of thinking, for one template."""

    name: str
    mode: Thinking
    """NATIVE, PROMPTED or OFF; never AUTO."""
    open: str = ""
    """Marker that begins thinking; hidden from users."""
    close: str = ""
    """Marker that ends it. Empty in the prompted profile, where the end of the turn does."""
    forced_close: str = ""
    """What to append to unfinished thinking to begin the answer; contains `close`. In the prompted
    profile it depends on the conversation: see `PreparedPrompt.forced_close`."""
    prompt_suffix: str = ""
    """Appended to every rendered prompt, where the template itself can't switch thinking off."""
    template_variables: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    think_instruction: str = ""
    answer_instruction: str = ""


@dataclass(frozen=True, slots=True)
class _Native:
    """What the probes say of a template that knows thinking."""

    open: str
    close: str
    forced_close: str
    switch: Switch | None
    off_suffix: str


def detect_profile(template: ChatTemplate | str | None, wanted: Thinking) -> ReasoningProfile:
    """The profile for a model with this template (None: it has no template).

    AUTO is native where the template knows thinking, else off.

    Raises:
        InvalidRequest: native thinking is wanted, but the template has none.
        UnsupportedModel: the template does not compile.
    """
    if not isinstance(template, ChatTemplate):
        template = ChatTemplate(CHATML if template is None else template)
    native = _native(template)
    if wanted is Thinking.PROMPTED:
        return replace(
            _off(native),
            name="prompted",
            mode=Thinking.PROMPTED,
            think_instruction=THINK_INSTRUCTION,
            answer_instruction=ANSWER_INSTRUCTION,
        )
    if wanted is Thinking.OFF or (wanted is Thinking.AUTO and native is None):
        return _off(native)
    if native is None:
        raise InvalidRequest(
            "thinking: this model's chat template has no thinking of its own. Use "
            'thinking="prompted", which asks any instruct model to think first, or "off".'
        )
    return ReasoningProfile(
        name="native",
        mode=Thinking.NATIVE,
        open=native.open,
        close=native.close,
        forced_close=native.forced_close,
        template_variables=native.switch.on if native.switch else _NONE,
    )


def ends_open(text: str, open: str) -> bool:
    """Whether a prompt leaves the model inside its thinking."""
    return bool(open) and text.rstrip().endswith(open)


def _off(native: _Native | None) -> ReasoningProfile:
    if native is None:
        return ReasoningProfile(name="off", mode=Thinking.OFF)
    return ReasoningProfile(
        name="off",
        mode=Thinking.OFF,
        prompt_suffix=native.off_suffix,
        template_variables=native.switch.off if native.switch else _NONE,
    )


def _native(template: ChatTemplate) -> _Native | None:
    """Read off the template how its model thinks; None if it does not."""
    switch, on, off = _switched(template)
    past = _tail(template, switch.on if switch else _NONE, thought=True)
    tag = next((found for text in (on, off, past) if (found := _TAG.search(text))), None)
    if tag is None:
        return None
    open, close = tag.group(), f"</{tag.group(1)}>"
    if close in on:  # thinking stays closed, whatever is switched
        return None
    forced_close = _forced_close(open, close, on, off, past)
    return _Native(open, close, forced_close, switch, _off_suffix(open, forced_close, on, off))


def _switched(template: ChatTemplate) -> tuple[Switch | None, str, str]:
    """The switch that works, and the generation prompts with thinking on and off."""
    for switch in SWITCHES:
        on, off = _tail(template, switch.on), _tail(template, switch.off)
        if on != off:
            return switch, on, off
    tail = _tail(template, _NONE)
    return None, tail, tail


def _tail(template: ChatTemplate, variables: Mapping[str, Any], thought: bool = False) -> str:
    """What the template renders after a question: the generation prompt, or with `thought` an
    answer that was thought about. Empty if the template refuses the probe."""
    messages = [Message(role="user", content=_QUESTION)]
    if thought:
        messages.append(Message(role="assistant", content=_ANSWER, reasoning=_THOUGHT))
    try:
        text = template.render(
            messages, add_generation_prompt=not thought, seconds=_PROBE_SECONDS, **variables
        )
    except (InvalidRequest, UnsupportedModel):
        return ""
    return text.rpartition(_QUESTION)[2]


def _forced_close(open: str, close: str, on: str, off: str, past: str) -> str:
    """The close with the line breaks around it that the model saw in training.

    Best known from an earlier turn that thought. Else from the empty thinking that a template
    writes to switch it off; if it says nothing of what follows, a model that thinks on lines of
    its own is taken to leave an empty line.
    """
    between = past.partition(_THOUGHT)[2].partition(_ANSWER)[0]
    if close in between:
        return between
    _, block, rest = off.partition(open)
    inside, _, after = rest.partition(close)
    if (block and inside.startswith("\n")) or f"{open}\n" in on:
        return f"\n{close}" + (after or "\n\n")
    return close + after


def _off_suffix(open: str, forced_close: str, on: str, off: str) -> str:
    """What must follow the generation prompt so that the model answers at once."""
    if ends_open(off, open):
        return forced_close
    if off == on:  # no switch: an empty thinking
        return open + forced_close
    return ""
