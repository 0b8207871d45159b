"""What the decoding side must know of a model's thinking format, in tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThinkingFormat:
    """How thinking starts and ends.

    The *close* is `close_tokens` followed by `lead_tokens`. A model that closes by itself writes
    the marker in `close_tokens`; whatever it writes next is already answer, and it mostly is
    `lead_tokens` (line breaks). So answer positions are counted from the end of the marker, and a
    draft that was forced past the lead stays aligned with an answer that wrote it.
    """

    open: str
    """Marker that begins thinking; empty where there is none (prompted profile)."""
    close: str
    """Marker that ends it; empty where the end of the turn does."""
    opened: bool
    """The prompt already ends inside the thinking."""
    forced_close: str
    """The text of the whole close."""
    open_tokens: tuple[int, ...]
    close_tokens: tuple[int, ...]
    lead_tokens: tuple[int, ...]
    marker_tokens: frozenset[int]
    """Control tokens that are part of a marker: their text must be seen to find it."""

    @property
    def forced_tokens(self) -> tuple[int, ...]:
        return self.close_tokens + self.lead_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseSpec:
    """A request, resolved against a model: everything its course needs, in tokens and numbers."""

    prompt: tuple[int, ...]
    thinking: ThinkingFormat | None
    """None: the model answers at once."""
    thinking_budget: int | None
    max_tokens: int | None
    n_ctx: int
    stops: tuple[str, ...]
    prediction: tuple[int, ...]
    drafts: bool
    """Fork drafts beside thinking."""
    suffixes: bool
    """Propose from the suffix cache."""

    @property
    def max_thinking_length(self) -> int:
        """Longest sequence that thinking may reach: the close and some answer must still fit."""
        forced = len(self.thinking.forced_tokens) if self.thinking else 0
        return self.n_ctx - forced - min(_ANSWER_ROOM, self.n_ctx // 4)


_ANSWER_ROOM = 256
"""Tokens kept for the answer when thinking fills the context."""
