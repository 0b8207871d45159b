"""A stand-in for the engine that replays a script of events: for looks and timings that a real
model would not give on demand. It computes nothing and proves nothing about the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ssr_local.engine import ModelInfo
from ssr_local.errors import EngineClosed, SSRError
from ssr_local.events import (
    AnswerDelta,
    DraftDelta,
    DraftFinished,
    DraftStarted,
    DraftStats,
    Event,
    Failed,
    Finished,
    Origin,
    PhaseSeconds,
    PromptProgress,
    ReasoningDelta,
    SpeculationStats,
    ThinkingEnded,
    Usage,
)
from ssr_local.generation import Generation
from ssr_local.request import Request, Sampling, Thinking
from ssr_local.settings import EngineSettings

Script = Callable[[Request], Iterator[tuple[float, Event]]]
"""Seconds to wait, and then what to say. Ids and times are filled in by the engine."""

INFO = ModelInfo(
    name="scripted",
    path=Path("scripted.gguf"),
    description="a script",
    n_ctx=8192,
    n_ctx_train=8192,
    thinking=Thinking.NATIVE,
    speculates=True,
    sampling=Sampling(),
)
NOWHERE = {"request_id": "", "time": 0.0}


@dataclass
class ScriptedEngine:
    """Runs one script at a time for each request, on a thread of its own."""

    script: Script
    info: ModelInfo = INFO
    settings: EngineSettings = EngineSettings()  # noqa: RUF009 (frozen)
    refusal: SSRError | None = None
    """Raised by `submit`."""

    def __post_init__(self) -> None:
        self._stops: dict[str, threading.Event] = {}
        self._nows: dict[str, threading.Event] = {}
        self.closed = False
        self.reset()

    def reset(self) -> None:
        """Forget what was asked, and refuse nothing."""
        self.refusal = None
        self.requests: list[Request] = []
        self.cut_short = threading.Event()
        """Set once a script was cancelled before its end."""

    def submit(self, request: Request) -> Generation:
        if self.refusal:
            raise self.refusal
        if self.closed:
            raise EngineClosed("The engine is closed.")
        self.requests.append(request)
        generation = Generation(f"scripted-{len(self._stops)}", self)
        self._stops[generation.request_id] = threading.Event()
        self._nows[generation.request_id] = threading.Event()
        threading.Thread(target=self._replay, args=(generation, request), daemon=True).start()
        return generation

    def cancel(self, request_id: str) -> None:
        self._stops[request_id].set()

    def answer_now(self, request_id: str) -> None:
        self._nows[request_id].set()

    def close(self) -> None:
        self.closed = True
        for stop in self._stops.values():
            stop.set()

    def _replay(self, generation: Generation, request: Request) -> None:
        time, number = 0.0, generation.request_id
        for delay, event in self.script(request):
            hurried = self._nows[number].is_set() and isinstance(event, ReasoningDelta)
            if not hurried and self._stops[number].wait(delay):
                event = finished(finish_reason="cancelled")
                self.cut_short.set()
            time += delay
            generation.append(replace(event, request_id=number, time=time))
            if isinstance(event, Finished | Failed):
                return


def finished(
    *, finish_reason: str = "stop", reasoning: int = 0, answer: int = 0, steps: int = 0
) -> Finished:
    lengths = tuple(len(range(step, answer, steps)) for step in range(steps))
    stats = SpeculationStats(
        acceptance_lengths=lengths,
        accepted_draft=max(0, answer - steps) // 2,
        accepted_suffix=max(0, answer - steps) - max(0, answer - steps) // 2,
        from_model=min(answer, steps),
        drafts=(DraftStats(checkpoint=30, tokens=60, steps=60, end="complete"),),
        seconds=PhaseSeconds(queue=0.0, prefill=0.4, thinking=6.2, answer=1.9),
        estimated_plain_seconds=11.2,
    )
    usage = Usage(
        prompt_tokens=42,
        prompt_tokens_reused=0,
        reasoning_tokens=reasoning,
        answer_tokens=answer,
    )
    return Finished(**NOWHERE, finish_reason=finish_reason, usage=usage, stats=stats)  # type: ignore[arg-type]


def reading(total: int = 42) -> Iterator[tuple[float, Event]]:
    for processed in (0, total // 2, total):
        yield 0.05, PromptProgress(**NOWHERE, processed=processed, total=total, reused=0)


def thinking(words: list[str], delay: float) -> Iterator[tuple[float, Event]]:
    for word in words:
        yield delay, ReasoningDelta(**NOWHERE, text=word + " ", tokens=1)


def drafting(number: int, checkpoint: int, text: str) -> Iterator[tuple[float, Event]]:
    """A whole draft, a word at a time."""
    yield 0.0, DraftStarted(**NOWHERE, draft=number, checkpoint=checkpoint)
    words = text.split(" ")
    for index, word in enumerate(words):
        space = "" if index == len(words) - 1 else " "
        yield 0.02, DraftDelta(**NOWHERE, draft=number, text=word + space, tokens=1)
    yield 0.0, DraftFinished(**NOWHERE, draft=number, tokens=len(words), end="complete")


def answering(*runs: tuple[str, Origin], delay: float = 0.05) -> Iterator[tuple[float, Event]]:
    for text, origin in runs:
        tokens = max(1, len(text) // 4) if origin is not Origin.MODEL else 1
        yield delay, AnswerDelta(**NOWHERE, text=text, origin=origin, tokens=tokens)


def saying(answer: str, thought: str = "", delay: float = 0.01) -> Script:
    """A script that thinks and answers, with a draft that is the answer."""

    def script(_request: Request) -> Iterator[tuple[float, Event]]:
        yield from reading()
        words = thought.split(" ") if thought else []
        half = len(words) // 2
        yield from thinking(words[:half], delay)
        if thought:
            yield from drafting(0, half, answer)
            yield from thinking(words[half:], delay)
            yield 0.0, ThinkingEnded(**NOWHERE, tokens=len(words), reason="closed")
        middle = len(answer) // 2
        yield from answering((answer[:middle], Origin.DRAFT), (answer[middle:], Origin.MODEL))
        yield 0.0, finished(reasoning=len(words), answer=len(answer) // 4, steps=2)

    return script
