"""When to draft beside thinking, and for how long.

One small interface, so that a schedule learnt from measured costs can replace the fixed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class DraftSchedule(Protocol):
    """Decides on checkpoints."""

    @property
    def max_draft_tokens(self) -> int:
        """Longest draft."""

    def wants_draft(self, thinking_tokens: int, last_checkpoint: int | None) -> bool:
        """Whether to fork a (new) draft now, given the CoT tokens so far and the CoT length that
        the newest draft has seen (None before the first)."""


@dataclass(frozen=True, slots=True)
class GrowingSchedule:
    """Checkpoints at a growing distance: each draft sees `growth` times the CoT of the one before.

    Early drafts are the least likely to be right, but they are what the later ones are refreshed
    through; a growing distance keeps the number of refreshes logarithmic in the CoT's length.
    """

    first_checkpoint: int = 48
    growth: float = 1.6
    max_draft_tokens: int = 512

    def wants_draft(self, thinking_tokens: int, last_checkpoint: int | None) -> bool:
        if last_checkpoint is None:
            return thinking_tokens >= self.first_checkpoint
        return thinking_tokens >= self.growth * last_checkpoint


@dataclass(frozen=True, slots=True)
class NoDrafts:
    """Never drafts."""

    max_draft_tokens: int = 0

    def wants_draft(self, thinking_tokens: int, last_checkpoint: int | None) -> bool:
        return False
