"""How large the context becomes: the request's tokens, the drafts' cells, the batch's logits."""

from __future__ import annotations

from dataclasses import dataclass

from ssr_local.decoding.course import MAX_SPAN
from ssr_local.decoding.drafting import MAX_DRAFT_SPAN
from ssr_local.decoding.slot import SEQUENCES_PER_SLOT
from ssr_local.device import this_machine
from ssr_local.errors import InvalidRequest
from ssr_local.footprint import largest_context
from ssr_local.gguf import GGUFHeader
from ssr_local.llama.context import MAX_SEQUENCES
from ssr_local.settings import EngineSettings

DEFAULT_N_CTX = 16_384
"""A reasoning model's thinking alone takes thousands of tokens; more costs memory at once."""

MIN_N_CTX = 2_048
"""The default is not made smaller than this to fit memory: the user hears that it does not fit."""

MAX_DRAFT_CELLS = 2_048


@dataclass(frozen=True, slots=True)
class ContextSize:
    """Sizes of one llama.cpp context."""

    n_ctx: int
    draft_cells: int
    slots: int
    batch_rows: int

    @property
    def n_cells(self) -> int:
        return self.slots * (self.n_ctx + self.draft_cells)

    @property
    def n_sequences(self) -> int:
        return self.slots * SEQUENCES_PER_SLOT

    @property
    def max_logit_rows(self) -> int:
        """A main span with its pending row, or a thinking row beside a draft's span, per slot."""
        per_slot = max(MAX_SPAN + 1, 1 + MAX_DRAFT_SPAN + 1)
        return min(self.batch_rows, self.slots * per_slot)


def context_size(header: GGUFHeader, settings: EngineSettings) -> ContextSize:
    """Sizes for a model under given settings; None values are chosen to fit model and memory.

    Raises:
        InvalidRequest: more slots than llama.cpp has sequences for.
    """
    if settings.slots * SEQUENCES_PER_SLOT > MAX_SEQUENCES:
        raise InvalidRequest(f"slots: at most {MAX_SEQUENCES // SEQUENCES_PER_SLOT}")
    n_ctx = settings.n_ctx or _fitting_n_ctx(header, settings)
    draft_cells = settings.draft_cells
    if draft_cells is None:
        draft_cells = min(n_ctx // 4, MAX_DRAFT_CELLS)
    return ContextSize(n_ctx, draft_cells, settings.slots, settings.batch_rows)


def _fitting_n_ctx(header: GGUFHeader, settings: EngineSettings) -> int:
    """The default context, made smaller where memory asks for it."""
    wanted = min(header.context_length or DEFAULT_N_CTX, DEFAULT_N_CTX)
    fitting = largest_context(header, this_machine(), settings.kv_type) // settings.slots
    return min(wanted, max(fitting, MIN_N_CTX))
