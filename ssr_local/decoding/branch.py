"""One sequence that is being extended, and the step by which every token comes about.

Prefill, thinking, drafting, verifying and plain decoding are the same step: decode the pending
tokens and a proposed span behind them, choose a token from each row, and go on as long as the
chosen token is the proposed one. With an empty proposal this is plain decoding.

Words: a proposed token that the target chose itself is *accepted*; the token chosen after the last
accepted one is the *bonus* token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ssr_local.decoding.sampling import History, Sampler
from ssr_local.llama.batch import RowBlock
from ssr_local.llama.context import Logits
from ssr_local.llama.memory import SequenceMemory


@dataclass(frozen=True, slots=True)
class Decision:
    """A token that the model chose."""

    token: int
    accepted: bool
    """It had been proposed."""


class Branch:
    """A sequence, the tokens decided for it, and where its sampling stands.

    Attributes:
        seq: number of the sequence.
        tokens: all tokens decided, from position 0. The last one is always still to be decoded.
        length: how many of them the sequence's memory holds.
        stream, position: where in the noise the next sampled token stands.
    """

    def __init__(
        self,
        seq: int,
        tokens: Sequence[int],
        length: int,
        *,
        sampler: Sampler,
        history: History,
        stream: int,
        position: int = 0,
    ) -> None:
        self.seq = seq
        self.tokens = list(tokens)
        self.length = length
        self.stream = stream
        self.position = position
        self.history = history
        self._sampler = sampler
        self._span: Sequence[int] = ()
        self._rows = 0

    @property
    def n_pending(self) -> int:
        """Tokens decided but not decoded."""
        return len(self.tokens) - self.length

    @property
    def length_after_step(self) -> int:
        """Length once the planned step is settled, if its span is accepted."""
        return self.length + self._rows

    def block(self, max_rows: int, span: Sequence[int] = ()) -> RowBlock:
        """The rows of the next step: pending tokens, then as much of the span as fits.

        When not even the pending tokens fit, the step decodes the first of them and no logits.
        """
        assert max_rows > 0
        pending = self.tokens[self.length : self.length + max_rows]
        complete = len(pending) == self.n_pending
        self._span = span[: max_rows - len(pending)] if complete else ()
        self._rows = len(pending) + len(self._span)
        n_logits = len(self._span) + 1 if complete else 0
        return RowBlock(self.seq, self.length, [*pending, *self._span], n_logits)

    def decide(self, logits: Logits) -> Iterator[Decision]:
        """Choose tokens from the step's logits, one at a time. The caller may stop early: what it
        has taken is decided, and nothing after.

        Yields nothing after a step that decoded only a part of the pending tokens.
        """
        for row, proposed in zip(logits, [*self._span, None], strict=False):
            token = self._sampler.sample(row, self.stream, self.position, self.history)
            self.position += 1
            self.history.add(token)
            accepted = token == proposed
            yield Decision(token, accepted)
            if not accepted:
                return

    def settle(self, memory: SequenceMemory, following: Sequence[int]) -> None:
        """Finish the step: keep in memory what was decided, forget rejected rows.

        Args:
            following: all tokens decided in this step: the decisions that were taken, and whatever
                is forced behind them. Rows of the span that hold the same tokens stay in memory.
        """
        agreed = _common_prefix(self._span, following)
        kept = self._rows - len(self._span) + agreed
        self.tokens.extend(following)
        self.length += memory.settle(self.seq, self.length, self._rows, kept)

    def restart(self, stream: int, position: int) -> None:
        """Go on sampling at a place of another stream (the answer's, after the close)."""
        self.stream, self.position = stream, position


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
