"""The text side of a request: from decided tokens to events.

Owns what must never leak: broken UTF-8, markers, the beginning of a stop string. It knows nothing
of sequences, rows or drafts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ssr_local.chat.text import StopMatcher, Utf8Stream
from ssr_local.events import Origin


@dataclass(frozen=True, slots=True)
class AnswerRun:
    """Answer text whose tokens have one origin."""

    text: str
    origin: Origin
    tokens: int
    match_length: int


class AnswerWriter:
    """Collects the answer's text, holds back what may become a stop string, remembers origins.

    Leading line breaks are dropped: families write between none and two after their close.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._matcher = StopMatcher(stops)
        self._held: deque[AnswerRun] = deque()
        self._ready: list[AnswerRun] = []
        self._started = False
        self.stopped = False

    def feed(self, text: str, origin: Origin, match_length: int = 0, tokens: int = 1) -> None:
        """Take the text of a token (possibly empty, in the middle of a character). Sets `stopped`
        when it completes a stop string."""
        if not self._started:
            text = text.lstrip("\r\n")
            self._started = bool(text)
        self._held.append(AnswerRun(text, origin, tokens, match_length))
        released = self._matcher.feed(text)
        self._release(len(released.text))
        self.stopped = self.stopped or released.stopped

    def finish(self) -> None:
        """No more text comes: what was held back is answer after all."""
        if not self.stopped:
            self._release(len(self._matcher.flush()))

    def take(self) -> list[AnswerRun]:
        """The text that became certain since the last call, in runs of one origin."""
        runs: list[AnswerRun] = []
        for piece in self._ready:
            last = runs[-1] if runs else None
            if last and (last.origin, last.match_length) == (piece.origin, piece.match_length):
                runs[-1] = replace(
                    last, text=last.text + piece.text, tokens=last.tokens + piece.tokens
                )
            else:
                runs.append(piece)
        self._ready.clear()
        return [run for run in runs if run.text or run.tokens]

    def _release(self, characters: int) -> None:
        """Move so many characters, and all tokens that end within them, from held to ready."""
        while self._held and len(self._held[0].text) <= characters:
            run = self._held.popleft()
            characters -= len(run.text)
            self._ready.append(run)
        if characters:
            run = self._held[0]
            self._ready.append(replace(run, text=run.text[:characters], tokens=0))
            self._held[0] = replace(run, text=run.text[characters:])


class DraftWriter:
    """The text of one draft, for display only."""

    def __init__(self) -> None:
        self._utf8 = Utf8Stream()
        self._started = False

    def feed(self, data: bytes) -> str:
        text = self._utf8.feed(data)
        if not self._started:
            text = text.lstrip("\r\n")
            self._started = bool(text)
        return text
