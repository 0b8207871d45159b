"""Rendering a conversation so that no special token is parsed out of what users wrote.

A template is a program: it may trim a content, split it at `</think>`, take parts out of it, or
leave it away. So nothing is assumed of where contents end up; they are rendered with marks
(private-use characters that occur nowhere else), and the marks tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from ssr_local.chat.special import Segment, Span, SpecialTexts, free_characters, segments
from ssr_local.request import Message

Render = Callable[[Sequence[Message]], str]

Marks = tuple[str, str]
"""The characters before and after a marked stretch."""


def render_protected(
    render: Render, messages: Sequence[Message], specials: SpecialTexts, source: str
) -> tuple[Segment, ...]:
    """The rendered conversation; special tokens are parsed only where the template wrote them.

    If contents come out whole wherever they are put between marks, what looks like a special token
    in them is cut there, and the template had its way with them. Else the template looks into
    contents: then it is shown contents in which such text is already broken by marks, and takes it
    for the text it is. A template that still loses marks can at worst make its own text plain.
    """
    texts = [text for m in messages for text in (m.content, m.reasoning or "")]
    on, off, start, end = free_characters(4, [source, *texts])
    text = render(messages)
    spans = _content_spans(render, messages, text, (start, end))
    cores = sorted(t.strip() for t in texts if t.strip())
    if sorted(text[first:last] for first, last in spans) == cores:
        return segments(text, specials.halves(_within(spans, specials.find(text))))

    def broken(content: str) -> str:
        return _broken(content, specials.halves(specials.find(content)), (on, off))

    opaque = [_mapped(message, broken) for message in messages]
    text = render(opaque)
    spans = _content_spans(render, opaque, text, (start, end))
    assembled = specials.halves(_within(spans, specials.find(text)))
    return _segments_between(_broken(text, assembled, (on, off)), (on, off))


def _mapped(message: Message, change: Callable[[str], str]) -> Message:
    reasoning = None if message.reasoning is None else change(message.reasoning)
    return message.model_copy(update={"content": change(message.content), "reasoning": reasoning})


def _content_spans(
    render: Render, messages: Sequence[Message], text: str, marks: Marks
) -> list[Span]:
    """Where contents are in `text`, which is `messages` rendered; none if marks change the text."""

    def between_marks(content: str) -> str:
        core = content.strip()  # templates trim what surrounds it
        return content.replace(core, marks[0] + core + marks[1], 1) if core else content

    marked = render([_mapped(message, between_marks) for message in messages])
    parts = re.split(f"([{marks[0]}{marks[1]}])", marked)
    if "".join(parts[::2]) != text or parts[1::2] != [*marks] * (len(parts) // 4):
        return []
    ends = list(accumulate(map(len, parts[::2])))
    return list(zip(ends[:-1:2], ends[1::2], strict=True))


def _within(spans: Sequence[Span], found: Iterable[Span]) -> list[Span]:
    """Those occurrences that touch a span."""
    return [
        (first, last)
        for first, last in found
        if any(start < last and first < end for start, end in spans)
    ]


def _broken(text: str, halves: Sequence[Span], marks: Marks) -> str:
    """The text with marks around the halves."""
    on, off = marks
    pieces = segments(text, halves)
    return "".join(p.text if p.special else on + p.text + off for p in pieces)


def _segments_between(text: str, marks: Marks) -> tuple[Segment, ...]:
    """Cut at the marks; only a complete pair makes what is between it plain."""
    on, off = marks
    result = []
    for index, part in enumerate(re.split(f"{on}([^{on}{off}]*){off}", text)):
        for piece in re.split(f"[{on}{off}]", part):
            result.append(Segment(piece, special=index % 2 == 0))
    return tuple(segment for segment in result if segment.text)
