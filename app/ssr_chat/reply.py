"""One reply as it comes in: a reducer over the engine's events.

Holds what was thought, drafted and answered, and where the request stands. Knows nothing of HTML
layout, threads or Gradio.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from ssr_chat.growing import GrowingMarkdown
from ssr_local.errors import SSRError
from ssr_local.events import (
    AnswerDelta,
    DraftDelta,
    DraftFinished,
    DraftStarted,
    Event,
    Failed,
    Finished,
    Origin,
    PromptProgress,
    ReasoningDelta,
    ThinkingEnd,
    ThinkingEnded,
)


class Phase(StrEnum):
    """Where a reply stands."""

    WAITING = "waiting"
    READING = "reading"
    THINKING = "thinking"
    ANSWERING = "answering"
    DONE = "done"
    FAILED = "failed"

    @property
    def running(self) -> bool:
        return self not in (Phase.DONE, Phase.FAILED)


@dataclass(slots=True)
class Draft:
    """The newest draft. Until it is as long as the one it replaces, that one's rest is shown."""

    number: int
    checkpoint: int
    tokens: int = 0
    text: str = ""
    previous: str = ""
    complete: bool = False

    def shown(self) -> GrowingMarkdown:
        """What the draft looks like now; the rest of the previous draft is marked `stale`."""
        document = GrowingMarkdown()
        document.append(self.text)
        if not self.complete:
            document.append(self.previous[len(self.text) :], "stale")
        return document


@dataclass(slots=True)
class Thought:
    """The thinking before an answer."""

    document: GrowingMarkdown = field(default_factory=GrowingMarkdown)
    tokens: int = 0
    began: float | None = None
    ended: float | None = None
    end: ThinkingEnd | None = None


@dataclass(slots=True)
class Reply:
    """Feed it events in order; read its fields in between. Times are seconds since the request."""

    phase: Phase = Phase.WAITING
    waiting_for: str = ""
    """Why nothing happens yet, for the user."""
    now: float = 0.0
    prompt_read: int = 0
    prompt_total: int = 0
    thought: Thought = field(default_factory=Thought)
    draft: Draft | None = None
    drafts: int = 0
    answer: GrowingMarkdown = field(default_factory=GrowingMarkdown)
    answer_began: float | None = None
    by_origin: Counter[Origin] = field(default_factory=Counter)
    finished: Finished | None = None
    stopped: bool = False
    error: SSRError | None = None
    refused: bool = False
    """Nothing was done: the request was impossible, or no model is loaded."""

    def apply(self, event: Event) -> None:
        self.now = event.time
        match event:
            case PromptProgress():
                self.phase = Phase.READING
                self.prompt_read, self.prompt_total = event.processed, event.total
            case ReasoningDelta():
                self._think(event)
            case ThinkingEnded():
                self.thought.tokens, self.thought.end = event.tokens, event.reason
                self._end_thinking()
            case DraftStarted() | DraftDelta() | DraftFinished():
                self._draft(event)
            case AnswerDelta():
                self._answer(event)
            case Finished():
                self.finished = event
                self._end(stopped=event.finish_reason == "cancelled")
            case Failed():
                self.fail(event.error)

    def fail(self, error: SSRError) -> None:
        self._end_thinking()
        self.error, self.phase = error, Phase.FAILED

    def refuse(self, error: SSRError) -> None:
        self.refused = True
        self.fail(error)

    def stop(self) -> None:
        """The user stopped it before the engine had it."""
        self._end(stopped=True)

    def _end(self, *, stopped: bool) -> None:
        self._end_thinking()
        self.stopped, self.phase = stopped, Phase.DONE

    def _think(self, event: ReasoningDelta) -> None:
        self.phase = Phase.THINKING
        if self.thought.began is None:
            self.thought.began = event.time
        self.thought.document.append(event.text)
        self.thought.tokens += event.tokens

    def _end_thinking(self) -> None:
        if self.thought.began is not None and self.thought.ended is None:
            self.thought.ended = self.now

    def _draft(self, event: DraftStarted | DraftDelta | DraftFinished) -> None:
        if isinstance(event, DraftStarted):
            previous = self.draft.shown().text if self.draft else ""
            self.draft = Draft(event.draft, event.checkpoint, previous=previous)
            self.drafts += 1
        elif self.draft and self.draft.number == event.draft:
            if isinstance(event, DraftDelta):
                self.draft.text += event.text
                self.draft.tokens += event.tokens
            else:
                self.draft.complete = event.end == "complete"

    def _answer(self, event: AnswerDelta) -> None:
        self._end_thinking()
        self.phase = Phase.ANSWERING
        if self.answer_began is None:
            self.answer_began = event.time
        self.answer.append(event.text, event.origin.value)
        self.by_origin[event.origin] += event.tokens
