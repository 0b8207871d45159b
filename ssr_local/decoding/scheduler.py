"""Packs the rows of all live courses into one batch, decodes it, and deals out the logits.

Continuous batching and drafting are the same mechanism: a draft is just more rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ssr_local.decoding.course import Course
from ssr_local.errors import SSRError
from ssr_local.llama.batch import RowBlock
from ssr_local.llama.context import DecodeInterrupted, LlamaContext
from ssr_local.llama.memory import SequenceMemory


@dataclass(frozen=True, slots=True)
class _Share:
    """One course's part of a batch."""

    course: Course
    blocks: list[RowBlock]


class Scheduler:
    """Steps courses in one context. Not thread-safe: one thread owns it."""

    def __init__(self, context: LlamaContext, memory: SequenceMemory) -> None:
        self._context = context
        self._memory = memory
        self._single_rows: deque[float] = deque(maxlen=64)

    def single_row_seconds(self) -> float | None:
        """Median duration of the latest steps with one row, if there were any."""
        return median(self._single_rows) if self._single_rows else None

    def step(self, courses: Sequence[Course]) -> None:
        """Advance every course by one step.

        An interrupted step changes nothing: what was decoded of it is forgotten. A course that
        fails by itself ends; the others go on.

        Raises:
            BackendError: llama.cpp failed; the context's sequences are in doubt.
        """
        shares = self._plan(courses)
        blocks = [block for share in shares for block in share.blocks]
        started = time.perf_counter()
        try:
            logits = self._context.decode(blocks)
        except DecodeInterrupted:
            for block in blocks:
                self._memory.cut(block.seq, block.start)
            return
        for share in shares:
            count = len(share.blocks)
            try:
                share.course.advance(logits[:count])
            except SSRError as error:
                share.course.fail(error)
            del logits[:count]
        if sum(map(len, blocks)) == 1:
            self._single_rows.append(time.perf_counter() - started)

    def _plan(self, courses: Sequence[Course]) -> list[_Share]:
        """Divide the batch evenly: a long prompt takes what the others leave."""
        room = self._context.max_rows
        shares = []
        for waiting, course in zip(range(len(courses), 0, -1), courses, strict=True):
            blocks = course.plan(room // waiting)
            room -= sum(len(block) for block in blocks)
            shares.append(_Share(course, blocks))
        return shares
