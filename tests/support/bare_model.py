"""A model and one sequence of it, without an engine: for looking at logits themselves.

Not `llama_cpp.Llama`: it rearranges the weights for Intel's AMX where the CPU has it, and that code
of llama.cpp can crash the process (`ssr_local.llama.backends.uses_amx`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ssr_local.llama.batch import RowBlock
from ssr_local.llama.context import LlamaContext, Logits
from ssr_local.llama.model import LlamaModel
from ssr_local.llama.vocab import Vocab
from ssr_local.settings import EngineSettings

MAX_LOGIT_ROWS = 64


class BareModel:
    """One sequence in a context of its own."""

    def __init__(self, vocab: Vocab, context: LlamaContext) -> None:
        self.vocab = vocab
        self._context = context
        self._length = 0

    def decode(self, tokens: Sequence[int], n_logits: int | None = None) -> Logits:
        """Append tokens; the logits of the last `n_logits` of them (of all, if not said)."""
        wanted = len(tokens) if n_logits is None else n_logits
        logits = self._context.decode([RowBlock(0, self._length, tokens, wanted)])[0]
        self._length += len(tokens)
        return logits.copy()

    def read(self, tokens: Sequence[int]) -> Logits:
        """Append tokens, in as many decodes as they need; the logits after the last one."""
        step = self._context.max_rows
        starts = range(0, len(tokens), step)
        return [self.decode(tokens[start : start + step], 1) for start in starts][-1][0]

    def restart(self) -> None:
        """Begin again with an empty sequence."""
        self._context.clear()
        self._length = 0


@contextmanager
def bare_model(path: Path, n_cells: int = 512) -> Iterator[BareModel]:
    """The model of a file in the exact recipe, freed at the end of the block."""
    settings = EngineSettings.exact()
    model = LlamaModel(path, settings)
    try:
        context = LlamaContext(
            model,
            settings,
            n_cells=n_cells,
            n_sequences=1,
            threads=1,
            max_logit_rows=MAX_LOGIT_ROWS,
        )
        try:
            yield BareModel(model.vocab, context)
        finally:
            context.close()
    finally:
        model.close()
