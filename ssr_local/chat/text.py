"""Streaming text: bytes to whole characters, and characters up to a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass


class Utf8Stream:
    """Decodes UTF-8 that arrives in arbitrary chunks; a character is released once it is whole.

    All chunks together give `bytes.decode("utf-8", "replace")` of all bytes.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def flush(self) -> str:
        """No bytes follow: what is left of a broken character becomes U+FFFD."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


@dataclass(frozen=True, slots=True)
class Released:
    """Text that is certain, and whether a stop string was completed right after it."""

    text: str
    stopped: bool


class StopMatcher:
    """Cuts a stream before the first stop string that is completed in it.

    Where several are completed by the same character, the longest one counts. Text is held back
    only while it may still become a stop string; nothing is released once one was completed.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string"
        self._stops = tuple(stops)
        self._held = ""
        self._stopped = False

    def feed(self, text: str) -> Released:
        if self._stopped:
            return Released("", stopped=True)
        text = self._held + text
        match = self._first_completed(text)
        if match is not None:
            self._held, self._stopped = "", True
            return Released(text[:match], stopped=True)
        certain = len(text) - self._undecided(text)
        self._held = text[certain:]
        return Released(text[:certain], stopped=False)

    def flush(self) -> str:
        """No text follows: what was held back is no stop string."""
        held, self._held = self._held, ""
        return held

    def _first_completed(self, text: str) -> int | None:
        """Where the stop string begins that is completed first."""
        found = [(start + len(s), start) for s in self._stops if (start := text.find(s)) >= 0]
        return min(found)[1] if found else None

    def _undecided(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        return max((overlap(text, stop) for stop in self._stops), default=0)


def overlap(text: str, target: str) -> int:
    """Length of the longest end of `text` that is a beginning of `target`, but not all of it."""
    for length in range(min(len(text), len(target) - 1), 0, -1):
        if text.endswith(target[:length]):
            return length
    return 0
