"""A running request, as its caller sees it: events that can be read, awaited, cancelled.

The engine's thread writes, any number of readers read, and none of them can hold the engine up. The
asynchronous side is an adapter over the same list of events.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from ssr_local.events import (
    AnswerDelta,
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    SpeculationStats,
    Usage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """All of a finished request."""

    answer: str
    reasoning: str
    finish_reason: FinishReason
    usage: Usage
    stats: SpeculationStats


class Control(Protocol):
    """What a generation may ask of the engine that runs it."""

    def cancel(self, request_id: str) -> None: ...
    def answer_now(self, request_id: str) -> None: ...


class Generation:
    """The events of one request, from the first one, for every reader.

    Iterate it (`for` or `async for`), or wait for `result()`. As a context manager it cancels the
    request when the block is left, however that happens.
    """

    def __init__(self, request_id: str, control: Control) -> None:
        self.request_id = request_id
        self._control = control
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._wakers: list[Callable[[], None]] = []

    def append(self, event: Event) -> None:
        """For the engine: add an event and wake all readers."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()
            wakers = list(self._wakers)
        for wake in wakers:
            wake()

    @property
    def done(self) -> bool:
        with self._changed:
            return bool(self._events) and _is_last(self._events[-1])

    def __iter__(self) -> Iterator[Event]:
        position = 0
        while True:
            with self._changed:
                while len(self._events) <= position:
                    self._changed.wait()
                fresh = self._events[position:]
            yield from fresh
            position += len(fresh)
            if _is_last(fresh[-1]):
                return

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(news.set)

        self._wakers.append(wake)
        try:
            position = 0
            while True:
                news.clear()
                with self._changed:
                    fresh = self._events[position:]
                if not fresh:
                    await news.wait()
                for event in fresh:
                    yield event
                    if _is_last(event):
                        return
                position += len(fresh)
        finally:
            self._wakers.remove(wake)

    def result(self) -> Completion:
        """Wait for the end.

        Raises:
            SSRError: what made the request fail.
        """
        return collect(list(self))

    async def aresult(self) -> Completion:
        """`result`, awaited."""
        return collect([event async for event in self])

    def cancel(self) -> None:
        """End the request within 100 ms. It then finishes with the reason "cancelled", and keeps
        what it has written. Does nothing if it has ended."""
        self._control.cancel(self.request_id)

    def answer_now(self) -> None:
        """End the thinking; the answer begins at the next step."""
        self._control.answer_now(self.request_id)

    def __enter__(self) -> Generation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()


def _is_last(event: Event) -> bool:
    return isinstance(event, Finished | Failed)


def collect(events: list[Event]) -> Completion:
    """Put the deltas of a whole request together.

    Raises:
        SSRError: what made the request fail.
    """
    last = events[-1]
    if isinstance(last, Failed):
        raise last.error
    assert isinstance(last, Finished)
    return Completion(
        answer="".join(e.text for e in events if isinstance(e, AnswerDelta)),
        reasoning="".join(e.text for e in events if isinstance(e, ReasoningDelta)),
        finish_reason=last.finish_reason,
        usage=last.usage,
        stats=last.stats,
    )
