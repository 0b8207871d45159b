"""How sequences are forked and rolled back, by kind of model memory.

Each request works on three sequences: *main* (prompt, thinking, answer), *draft* (the branch that
writes a draft), and *parked* (cells of finished drafts). Parked cells keep their place until the
request ends: a freed cell would be filled by the main sequence's next token, its cells would no
longer lie in the order of their positions, and sums over them would round differently than without
drafts.
"""

from __future__ import annotations

from typing import Protocol

from ssr_local.llama.context import LlamaContext


class SequenceMemory(Protocol):
    """Fork, roll back and drop sequences. Lengths are in tokens from position 0."""

    speculates: bool
    """Whether a span can be verified and rolled back at all."""

    def fork(self, source: int, target: int, length: int) -> None:
        """Make `target` a copy of the first `length` tokens of `source`."""

    def settle(self, seq: int, start: int, written: int, kept: int) -> int:
        """After a decode that wrote `written` rows at `start`, keep the first `kept` of them.

        Returns how many stay in memory; the caller decodes the rest of the kept ones again.
        """

    def cut(self, seq: int, length: int) -> int:
        """Forget all from `length` on, as far as this memory can. Returns the length that is left
        (0 when only forgetting everything was possible)."""

    def park(self, seq: int, parked: int, start: int) -> None:
        """Empty `seq`, but hold its cells from `start` on as part of `parked`."""

    def drop(self, seq: int) -> None:
        """Empty a sequence."""


class AttentionMemory:
    """Full attention, and sliding-window attention with a full-size cache."""

    speculates = True

    def __init__(self, context: LlamaContext) -> None:
        self._context = context

    def fork(self, source: int, target: int, length: int) -> None:
        self._context.remove(target)
        self._context.copy_sequence(source, target, 0, length)

    def settle(self, seq: int, start: int, written: int, kept: int) -> int:
        if kept < written:
            self._context.remove(seq, start + kept)
        return kept

    def cut(self, seq: int, length: int) -> int:
        self._context.remove(seq, length)
        return length

    def park(self, seq: int, parked: int, start: int) -> None:
        last = self._context.last_position(seq)
        if last >= start:
            self._context.copy_sequence(seq, parked, start, last + 1)
        self._context.remove(seq)

    def drop(self, seq: int) -> None:
        self._context.remove(seq)


class RecurrentMemory:
    """Recurrent and hybrid models: a state that can't go back. They run without speculation."""

    speculates = False

    def __init__(self, context: LlamaContext) -> None:
        self._context = context

    def fork(self, source: int, target: int, length: int) -> None:
        raise AssertionError("recurrent memory is not forked")

    def settle(self, seq: int, start: int, written: int, kept: int) -> int:
        assert kept == written, "recurrent memory can't roll back"
        return kept

    def cut(self, seq: int, length: int) -> int:
        if self._context.last_position(seq) + 1 == length:
            return length
        self._context.remove(seq)
        return 0

    def park(self, seq: int, parked: int, start: int) -> None:
        self._context.remove(seq)

    def drop(self, seq: int) -> None:
        self._context.remove(seq)
