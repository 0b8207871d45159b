"""Text that a tokenizer would turn into a special token, where a user merely wrote it.

A user may quote `<|im_end|>` or `</think>`. In their text that is text, and must not end a turn.
llama.cpp parses user-defined tokens (such as Qwen3's `<think>`) even where it is told not to parse
special ones, so the only safe way is to tokenize such a quote in two halves.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

Span = tuple[int, int]
"""Start and end of a stretch of text."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of prompt, to be tokenized by itself; ids of all segments joined are the prompt.

    `special` is False only for a half of a quoted special token. Where nobody quotes one, a whole
    prompt is one segment, and tokenized as the model saw it in training.
    """

    text: str
    special: bool


class SpecialTexts:
    """The special tokens of one model, by their text."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """Texts of one character are left out: they can't be halved, and mean themselves."""
        self._texts = frozenset(text for text in texts if len(text) > 1)
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for text in self._texts:
            lengths[text[0]].add(len(text))
        self._lengths = {first: sorted(sizes) for first, sizes in lengths.items()}
        self._firsts = re.compile("|".join(map(re.escape, self._lengths)) or "(?!)")

    @classmethod
    def of_vocabulary(
        cls, control: Iterable[str], user_defined: Iterable[str], template_source: str
    ) -> SpecialTexts:
        """All control tokens, and the user-defined ones that the template writes itself.

        Other user-defined tokens (line breaks, HTML tags) are ordinary text to a model, and belong
        to what users write.
        """
        used = (text for text in user_defined if text.strip() and text in template_source)
        return cls([*control, *used])

    def plus(self, texts: Iterable[str]) -> SpecialTexts:
        return SpecialTexts([*self._texts, *texts])

    def find(self, text: str) -> Iterator[Span]:
        """Every occurrence, overlapping ones too, ordered by start."""
        for match in self._firsts.finditer(text):
            start = match.start()
            for length in self._lengths[match.group()]:
                if text[start : start + length] in self._texts and start + length <= len(text):
                    yield start, start + length

    def halves(self, occurrences: Iterable[Span]) -> list[Span]:
        """Stretches that cover the occurrences and contain none of them whole."""
        pieces: list[Span] = []
        for start, end in occurrences:
            if pieces and start < pieces[-1][1]:
                first, last = pieces.pop()
                end = max(end, last)
                pieces.append((first, start + 1))
            else:
                pieces.append((start, start + 1))
            pieces.append((start + 1, end))
        return [(first, last) for first, last in pieces if first < last]


def segments(text: str, halves: Sequence[Span]) -> tuple[Segment, ...]:
    """Cut `text` at the halves, which are ordered and don't overlap."""
    result: list[Segment] = []
    position = 0
    for start, end in halves:
        result += [Segment(text[position:start], True), Segment(text[start:end], False)]
        position = end
    result.append(Segment(text[position:], True))
    return tuple(segment for segment in result if segment.text)


def free_characters(count: int, texts: Collection[str]) -> list[str]:
    """Private-use characters that occur in none of the texts."""
    planes = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
    used = set().union(*texts)
    free = (chr(code) for plane in planes for code in plane if chr(code) not in used)
    return [next(free) for _ in range(count)]
