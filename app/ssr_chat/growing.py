"""A markdown document that grows, and its HTML block by block.

Only the last blocks of a growing document can still change, so only they are rendered again: the
price of an update does not depend on the document's length.
"""

from __future__ import annotations

from itertools import pairwise

from ssr_chat.marked import parse, render

_OPEN_BLOCKS = 2
"""Blocks at the end that more text can change: the last one, and the one before it, because what
begins a block in the unfinished last line may turn out to continue the paragraph above."""


class GrowingMarkdown:
    """Append text, each stretch with a mark (a CSS class after `by-`; empty for none)."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._settled: list[str] = []
        self._tail = ""
        self._marks: list[str] = []
        self._blocks: list[str] | None = []

    @property
    def text(self) -> str:
        return "".join(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def append(self, text: str, mark: str = "") -> None:
        if text:
            self._text.append(text)
            self._tail += text
            self._marks += [mark] * len(text)
            self._blocks = None

    def blocks(self) -> list[str]:
        """The HTML of each top-level block."""
        if self._blocks is None:
            self._blocks = self._render()
        return self._blocks

    def _render(self) -> list[str]:
        blocks = parse(self._tail)
        starts = _offsets(self._tail, [block.line for block in blocks])
        bounds = pairwise([*starts, len(self._tail)])
        htmls = [
            render(block, self._tail[start:end], self._marks[start:end])
            for block, (start, end) in zip(blocks, bounds, strict=True)
        ]
        settled = len(blocks) - _OPEN_BLOCKS
        if settled > 0:
            self._settled += htmls[:settled]
            htmls = htmls[settled:]
            cut = starts[settled]
            self._tail, self._marks = self._tail[cut:], self._marks[cut:]
        return self._settled + htmls


def _offsets(text: str, lines: list[int]) -> list[int]:
    """Character offsets of line numbers."""
    at = [0]
    for line in text.split("\n"):
        at.append(at[-1] + len(line) + 1)
    return [at[line] for line in lines]
