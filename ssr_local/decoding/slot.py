"""A place for one request at a time in the context, and what it still holds from the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ssr_local.llama.memory import SequenceMemory

SEQUENCES_PER_SLOT = 3


@dataclass(slots=True)
class Slot:
    """Three sequences (main, draft, parked), and the tokens whose KV the main one holds."""

    number: int
    draft_cells: int
    """Cells for drafts, beside those of the main sequence."""
    tokens: list[int] = field(default_factory=list)

    @property
    def main(self) -> int:
        return self.number * SEQUENCES_PER_SLOT

    @property
    def draft(self) -> int:
        return self.main + 1

    @property
    def parked(self) -> int:
        return self.main + 2

    def overlap(self, prompt: Sequence[int]) -> int:
        """Tokens of the prompt whose KV is here. At least the last one is decoded anew, since its
        logits are needed."""
        length = 0
        for held, wanted in zip(self.tokens, prompt[:-1], strict=False):
            if held != wanted:
                break
            length += 1
        return length

    def reuse(self, prompt: Sequence[int], memory: SequenceMemory) -> int:
        """Keep what the prompt shares with the slot and forget the rest; returns how much."""
        length = memory.cut(self.main, self.overlap(prompt))
        del self.tokens[length:]
        return length

    def clear(self, memory: SequenceMemory) -> None:
        """Forget everything."""
        for seq in (self.main, self.draft, self.parked):
            memory.drop(seq)
        self.tokens.clear()
