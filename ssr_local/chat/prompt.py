"""A conversation, prepared for a model: rendered, cut into segments, with the close to force.

Owns the promise that the prompted profile (a turn that thinks, then a turn that answers) looks to
everything below like native thinking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ssr_local.chat.profiles import ReasoningProfile, ends_open
from ssr_local.chat.protection import render_protected
from ssr_local.chat.special import Segment, SpecialTexts, free_characters
from ssr_local.chat.template import ChatTemplate
from ssr_local.errors import UnsupportedModel
from ssr_local.request import Message, Thinking


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """What to give a model, and how to end its thinking."""

    segments: tuple[Segment, ...]
    """The prompt; tokenize each segment by itself."""
    forced_close: str
    """What to append to unfinished thinking to begin the answer. Template text: parse its special
    tokens. Empty when thinking is off."""
    opened: bool
    """Generation starts inside the thinking."""
    profile: ReasoningProfile

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


def prepare_prompt(
    template: ChatTemplate,
    messages: Sequence[Message],
    profile: ReasoningProfile,
    specials: SpecialTexts,
) -> PreparedPrompt:
    """Render a conversation for a profile that was detected with the same template.

    `specials` are the special tokens of the model's vocabulary; the profile's markers are added.

    Raises:
        InvalidRequest: the template refuses the conversation.
        UnsupportedModel: the template fails, or its assistant turns can't carry thoughts.
    """
    specials = specials.plus(text for text in (profile.open, profile.close) if text)
    messages = [_without_inline_reasoning(message, profile) for message in messages]
    forced_close = profile.forced_close
    if profile.mode is Thinking.PROMPTED:
        messages = _asked_to_think(messages, profile)
        forced_close = _between_turns(template, messages, profile)

    def render(conversation: Sequence[Message]) -> str:
        return template.render(conversation, **profile.template_variables) + profile.prompt_suffix

    pieces = render_protected(render, messages, specials, template.source)
    text = "".join(piece.text for piece in pieces)
    opened = profile.mode is Thinking.PROMPTED or ends_open(text, profile.open)
    return PreparedPrompt(pieces, forced_close, opened, profile)


def _without_inline_reasoning(message: Message, profile: ReasoningProfile) -> Message:
    """Take apart an earlier answer that some client replays with its thinking in front; the
    prompted profile forgets earlier thinking, as it was never part of a turn that answers."""
    if message.role != "assistant":
        return message
    content, reasoning = message.content, message.reasoning
    body = content.lstrip()
    if reasoning is None and profile.open and body.startswith(profile.open):
        thought, close, rest = body.removeprefix(profile.open).partition(profile.close)
        if close:
            content, reasoning = rest.lstrip("\r\n"), thought.strip()
    if profile.mode is Thinking.PROMPTED:
        reasoning = None
    return message.model_copy(update={"content": content, "reasoning": reasoning})


def _asked_to_think(messages: list[Message], profile: ReasoningProfile) -> list[Message]:
    """Ask for thoughts in the last user turn; in a turn of its own if another role has the last."""
    *earlier, last = messages
    if last.role != "user":
        return [*messages, Message(role="user", content=profile.think_instruction)]
    asked = f"{last.content}\n\n{profile.think_instruction}"
    return [*earlier, last.model_copy(update={"content": asked})]


def _between_turns(
    template: ChatTemplate, messages: list[Message], profile: ReasoningProfile
) -> str:
    """What the template writes between a turn of thoughts and the answer to come."""
    (thoughts,) = free_characters(1, [template.source, *(m.content for m in messages)])
    text = template.render(
        [
            *messages,
            Message(role="assistant", content=thoughts),
            Message(role="user", content=profile.answer_instruction),
        ],
        **profile.template_variables,
    )
    _, found, rest = text.rpartition(thoughts)
    if not found:
        raise UnsupportedModel(
            "This model's chat template does not repeat earlier assistant turns, so it can't be "
            'asked to think first (thinking="prompted"). Use thinking="off".'
        )
    return rest + profile.prompt_suffix
