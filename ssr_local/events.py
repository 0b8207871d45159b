"""What an engine says while it works on a request: the one stream that every front end consumes.

Events of a request arrive in this order: `PromptProgress`, then (when the model thinks)
`ReasoningDelta` interleaved with `DraftStarted`, `DraftDelta` and `DraftFinished`, then
`ThinkingEnded`, then `AnswerDelta`, and as the last event exactly one of `Finished` and `Failed`.

Joined `ReasoningDelta.text` is the reasoning, joined `AnswerDelta.text` is the answer, both free of
markers. Drafts are provisional: no draft text is part of the output until an `AnswerDelta` says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from ssr_local.errors import SSRError

FinishReason = Literal["stop", "length", "cancelled"]
"""Why a request ended: an end-of-text token or stop string, a limit reached, or a cancel."""

DraftEnd = Literal["complete", "limit", "refreshed", "thinking-ended", "abandoned"]
"""Why a draft ended: it wrote its end-of-text token; it reached its length limit; a newer
checkpoint replaced it; thinking ended; its cells were needed elsewhere."""

ThinkingEnd = Literal["closed", "budget", "context", "answer-now"]
"""Why thinking ended: the model closed it; the thinking budget was spent; the context had to keep
room for the answer; the user asked for it."""


class Origin(StrEnum):
    """Who proposed an answer token. The target model decided on every one of them."""

    MODEL = "model"
    """Nobody proposed it: the model's own next token (plain decoding, or the bonus token)."""
    DRAFT = "draft"
    """The newest partial-CoT draft, read from its cursor."""
    SUFFIX = "suffix"
    """A suffix-cache match in a draft, the CoT, the prompt, or an earlier answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of a request. Tokens that the engine forces (the close) are in neither count."""

    prompt_tokens: int
    prompt_tokens_reused: int
    """Prompt tokens whose KV was still in the slot from an earlier request."""
    reasoning_tokens: int
    answer_tokens: int

    @property
    def completion_tokens(self) -> int:
        return self.reasoning_tokens + self.answer_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStats:
    """What became of one draft."""

    checkpoint: int
    """CoT tokens that the draft had seen."""
    tokens: int
    """Tokens the draft wrote."""
    steps: int
    """Batches it took part in; fewer than `tokens` when speculation sped up the draft itself."""
    end: DraftEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSeconds:
    """Wall time of one request, by phase, in seconds."""

    queue: float = 0.0
    prefill: float = 0.0
    thinking: float = 0.0
    answer: float = 0.0

    @property
    def total(self) -> float:
        return self.queue + self.prefill + self.thinking + self.answer


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationStats:
    """What speculation did for one request. A *step* is one target pass over the main sequence."""

    thinking_steps: int = 0
    rows_proposed: int = 0
    """Proposed tokens that were verified during the answer, accepted or not."""
    accepted_draft: int = 0
    accepted_suffix: int = 0
    from_model: int = 0
    """Answer tokens that nobody had proposed."""
    acceptance_lengths: tuple[int, ...] = ()
    """Tokens gained by each answer step, in order (accepted plus bonus). The end of the text counts
    as a token here, so that plain decoding has 1 everywhere."""
    drafts: tuple[DraftStats, ...] = ()
    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)
    estimated_plain_seconds: float | None = None
    """Estimated total time without speculation: one measured single-row step for each token.
    None when no single-row step was measured."""

    @property
    def answer_steps(self) -> int:
        return len(self.acceptance_lengths)

    @property
    def tokens_per_step(self) -> float:
        """Mean acceptance length: answer tokens per target pass (1.0 is plain decoding)."""
        return sum(self.acceptance_lengths) / self.answer_steps if self.answer_steps else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Common to all events."""

    request_id: str
    time: float
    """Seconds since the request was submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptProgress(Event):
    """Some of the prompt was read. Sent at least once, with `processed == total` at the end."""

    processed: int
    total: int
    reused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta(Event):
    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStarted(Event):
    """A draft branch was forked. Drafts of a request are numbered from 0; a new one replaces the
    one before."""

    draft: int
    checkpoint: int
    """CoT tokens that the draft has seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftDelta(Event):
    draft: int
    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFinished(Event):
    draft: int
    tokens: int
    end: DraftEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingEnded(Event):
    tokens: int
    reason: ThinkingEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDelta(Event):
    """Final text. A run of tokens with one origin that one step decided."""

    text: str
    origin: Origin
    tokens: int
    match_length: int = 0
    """Tokens of context that the proposing suffix match covered; 0 for other origins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    finish_reason: FinishReason
    usage: Usage
    stats: SpeculationStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    error: SSRError
