"""Parts a model's text into reasoning and answer, at the markers of its family.

What it says of a whole text is the same however the text was chunked:
- Whitespace and `open` at the very beginning are the opening. Without `open` there, and if the
  prompt had not opened the thinking, everything is answer, as it is.
- Reasoning ends at the first `close`; without one, everything is reasoning.
- Everything after it is answer, markers included.
- Line breaks after a marker, and whitespace at the end of the reasoning, belong to the markers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssr_local.chat.text import overlap

Kind = Literal["reasoning", "answer"]

_BREAKS = "\r\n"


@dataclass(frozen=True, slots=True)
class Piece:
    kind: Kind
    text: str


class ThinkingSplitter:
    """Streaming; feed it token by token, and `closed` turns True at the token that ends thinking.

    Without `close` thinking never ends here; without `open`, and not `opened`, all is answer.
    """

    def __init__(self, open: str, close: str, opened: bool) -> None:
        self._open = open
        self._close = close
        self._opened = opened
        self._closed = False
        self._held = ""
        """Text of which it is not yet clear what it is."""
        self._state: Literal["opening", "reasoning", "answer"] = (
            "opening" if open else "reasoning" if opened else "answer"
        )
        self._at_break = opened or bool(open)
        """Right after a marker: line breaks are dropped."""

    @property
    def in_thinking(self) -> bool:
        """Thinking has begun and has not ended."""
        return self._state == "reasoning" or (self._state == "opening" and self._opened)

    @property
    def closed(self) -> bool:
        """Thinking has begun and ended."""
        return self._closed

    def feed(self, text: str) -> list[Piece]:
        """What became certain with this text: at most one piece of each kind."""
        self._held += text
        pieces = []
        if self._state == "opening":
            self._try_opening()
        if self._state == "reasoning":
            pieces.append(Piece("reasoning", self._take_reasoning()))
        if self._state == "answer":
            pieces.append(Piece("answer", self._take_answer()))
        return [piece for piece in pieces if piece.text]

    def flush(self) -> list[Piece]:
        """No text follows: the beginning of a marker was text after all."""
        pieces = []
        if self._state == "opening":
            self._state = "reasoning" if self._opened else "answer"
            self._at_break = self._opened
        if self._state == "answer":
            pieces.append(Piece("answer", self._take_answer()))
        else:
            pieces.append(Piece("reasoning", self._without_breaks(self._held.rstrip())))
            self._held = ""
        return [piece for piece in pieces if piece.text]

    def _try_opening(self) -> None:
        body = self._held.lstrip()
        if body.startswith(self._open):
            self._held = body[len(self._open) :]
            self._state = "reasoning"
        elif not self._open.startswith(body):
            self._state = "reasoning" if self._opened else "answer"
            self._at_break = self._opened

    def _take_reasoning(self) -> str:
        """Held text up to the close, if it is there, else all that can't be part of it."""
        start = self._held.find(self._close) if self._close else -1
        if start >= 0:
            text = self._without_breaks(self._held[:start].rstrip())
            self._held = self._held[start + len(self._close) :]
            self._state, self._closed, self._at_break = "answer", True, True
            return text
        text = self._held[: len(self._held) - overlap(self._held, self._close)].rstrip()
        self._held = self._held[len(text) :]
        return self._without_breaks(text)

    def _take_answer(self) -> str:
        text, self._held = self._held, ""
        return self._without_breaks(text)

    def _without_breaks(self, text: str) -> str:
        """Drop line breaks right after a marker."""
        if self._at_break:
            text = text.lstrip(_BREAKS)
            self._at_break = not text
        return text
