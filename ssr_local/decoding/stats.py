"""Counts and times what happens in one request, for `events.SpeculationStats`."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from ssr_local.events import DraftStats, Origin, PhaseSeconds, SpeculationStats


class Phase(StrEnum):
    """Where a request is in its course."""

    PREFILL = "prefill"
    THINKING = "thinking"
    ANSWER = "answer"
    DONE = "done"


@dataclass(slots=True)
class StatsRecorder:
    """What one request has done so far."""

    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)
    marked: float = field(default_factory=time.perf_counter)
    """When the last step ended, or else the request began."""
    thinking_steps: int = 0
    acceptance_lengths: list[int] = field(default_factory=list)
    rows_proposed: int = 0
    by_origin: Counter[Origin] = field(default_factory=Counter)
    drafts: list[DraftStats] = field(default_factory=list)

    def step(self, phase: Phase) -> None:
        """A step of the main sequence ended; the time since the last one was `phase`'s."""
        now = time.perf_counter()
        seconds, self.marked = now - self.marked, now
        match phase:
            case Phase.PREFILL:
                self.seconds = replace(self.seconds, prefill=self.seconds.prefill + seconds)
            case Phase.THINKING:
                self.thinking_steps += 1
                self.seconds = replace(self.seconds, thinking=self.seconds.thinking + seconds)
            case Phase.ANSWER:
                self.seconds = replace(self.seconds, answer=self.seconds.answer + seconds)
            case Phase.DONE:
                pass
            case _:
                assert_never(phase)

    def answer_step(self, proposed: int, gained: int) -> None:
        """A target pass over the answer verified `proposed` tokens and gained `gained`."""
        self.rows_proposed += proposed
        self.acceptance_lengths.append(gained)

    def summary(self, plain_step_seconds: float | None, plain_steps: int) -> SpeculationStats:
        """The final figures.

        Args:
            plain_step_seconds: what a step with a single row takes here, if that was measured.
            plain_steps: steps that plain decoding would have needed.
        """
        plain = None
        if plain_step_seconds is not None:
            plain = self.seconds.prefill + plain_steps * plain_step_seconds
        return SpeculationStats(
            thinking_steps=self.thinking_steps,
            rows_proposed=self.rows_proposed,
            accepted_draft=self.by_origin[Origin.DRAFT],
            accepted_suffix=self.by_origin[Origin.SUFFIX],
            from_model=self.by_origin[Origin.MODEL],
            acceptance_lengths=tuple(self.acceptance_lengths),
            drafts=tuple(self.drafts),
            seconds=self.seconds,
            estimated_plain_seconds=plain,
        )
