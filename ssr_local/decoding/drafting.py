"""Drafts beside thinking: fork at a checkpoint, write, refresh, and hand over the best one.

Owns the draft sequence of one request and the cells it may use. A new draft is refreshed through
the one before: what the earlier one wrote is the later one's speculation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ssr_local.decoding.branch import Branch
from ssr_local.decoding.format import ThinkingFormat
from ssr_local.decoding.noise import ANSWER_STREAM
from ssr_local.decoding.proposer import AnswerProposer, Reliability
from ssr_local.decoding.sampling import Sampler
from ssr_local.decoding.schedule import DraftSchedule
from ssr_local.decoding.slot import Slot
from ssr_local.decoding.suffix_cache import SuffixCache
from ssr_local.decoding.writer import DraftWriter
from ssr_local.events import DraftDelta, DraftEnd, DraftFinished, DraftStarted, DraftStats
from ssr_local.llama.batch import RowBlock
from ssr_local.llama.context import Logits
from ssr_local.llama.memory import SequenceMemory
from ssr_local.llama.vocab import Vocab

MAX_DRAFT_SPAN = 15
"""Most tokens of an earlier draft that a refresh verifies in one step, beside the thinking row."""


class Draft:
    """One draft that is being written."""

    def __init__(
        self, number: int, checkpoint: int, branch: Branch, proposer: AnswerProposer, base: int
    ) -> None:
        self.number = number
        self.checkpoint = checkpoint
        self.branch = branch
        self.proposer = proposer
        self.base = base
        """Length of the cells shared with the main sequence."""
        self.tokens: list[int] = []
        self.steps = 0
        self.writer = DraftWriter()


class Drafting:
    """The draft branch of one request."""

    def __init__(
        self,
        *,
        slot: Slot,
        schedule: DraftSchedule,
        format: ThinkingFormat,
        sampler: Sampler,
        memory: SequenceMemory,
        vocab: Vocab,
        cache: SuffixCache | None,
        reliability: Reliability,
        emit: Callable[..., None],
    ) -> None:
        self._seq, self._parked = slot.draft, slot.parked
        self._max_cells = slot.draft_cells
        self._parked_cells = 0
        self._schedule = schedule
        self._format = format
        self._sampler = sampler
        self._memory = memory
        self._vocab = vocab
        self._cache = cache
        self._reliability = reliability
        self._emit = emit
        self._draft: Draft | None = None
        self._best: list[int] = []
        self._checkpoint: int | None = None
        self.finished: list[DraftStats] = []

    @property
    def best(self) -> list[int]:
        """The newest draft's tokens. While it only repeats the beginning of the one before, that
        one's continuation still counts."""
        draft = self._draft
        if draft is None or self._best[: len(draft.tokens)] == draft.tokens:
            return self._best
        return draft.tokens

    def consider(self, main: Branch, thinking_tokens: int) -> None:
        """Fork a draft off the main sequence if the schedule wants one now."""
        if not self._schedule.wants_draft(thinking_tokens, self._checkpoint):
            return
        if self._draft:
            self._end("refreshed")
        forced = self._format.forced_tokens
        if not self._make_room(main.n_pending + len(forced) + MAX_DRAFT_SPAN + 1):
            return
        self._fork(main, thinking_tokens)

    def _fork(self, main: Branch, thinking_tokens: int) -> None:
        self._checkpoint = thinking_tokens
        self._memory.fork(main.seq, self._seq, main.length)
        branch = Branch(
            self._seq,
            [*main.tokens, *self._format.forced_tokens],
            main.length,
            sampler=self._sampler,
            history=main.history.fork(),
            stream=ANSWER_STREAM,
            position=len(self._format.lead_tokens),
        )
        proposer = AnswerProposer(
            self._cache, branch.tokens, self._best, reliability=self._reliability
        )
        number = len(self.finished)
        self._draft = Draft(number, thinking_tokens, branch, proposer, main.length)
        self._emit(DraftStarted, draft=number, checkpoint=thinking_tokens)

    def block(self, max_rows: int) -> RowBlock | None:
        """The draft's rows for the next step."""
        draft = self._draft
        if draft is None or max_rows <= 0:
            return None
        left = self._schedule.max_draft_tokens - len(draft.tokens) - 1
        room = max_rows - draft.branch.n_pending
        span = draft.proposer.propose(max(0, min(room, left, MAX_DRAFT_SPAN)))
        return draft.branch.block(max_rows, span.tokens)

    def advance(self, logits: Logits) -> None:
        """Take what the draft's rows brought."""
        draft = self._draft
        assert draft is not None
        written: list[int] = []
        end: DraftEnd | None = None
        for decision in draft.branch.decide(logits):
            if self._vocab.is_end(decision.token):
                end = "complete"
                break
            written.append(decision.token)
        draft.branch.settle(self._memory, written)
        draft.steps += 1
        self._add(draft, written)
        if end is None and len(draft.tokens) >= self._schedule.max_draft_tokens:
            end = "limit"
        if end is None and not self._make_room(draft.branch.n_pending + MAX_DRAFT_SPAN + 1):
            end = "abandoned"
        if end:
            self._end(end)

    def _add(self, draft: Draft, written: Sequence[int]) -> None:
        if not written:
            return
        draft.tokens.extend(written)
        draft.proposer.advance(written)
        text = "".join(draft.writer.feed(self._vocab.piece(token)) for token in written)
        self._emit(DraftDelta, draft=draft.number, text=text, tokens=len(written))

    def stop(self) -> None:
        """Thinking is over: the draft is as long as it is."""
        if self._draft:
            self._end("thinking-ended")

    def release(self) -> None:
        """Give all cells back."""
        self._memory.drop(self._seq)
        self._memory.drop(self._parked)
        self._parked_cells = 0

    def _end(self, end: DraftEnd) -> None:
        draft = self._draft
        assert draft is not None
        self._best = self.best
        self._draft = None
        self._memory.park(self._seq, self._parked, draft.base)
        self._parked_cells += draft.branch.length - draft.base
        tokens = len(draft.tokens)
        self.finished.append(
            DraftStats(checkpoint=draft.checkpoint, tokens=tokens, steps=draft.steps, end=end)
        )
        self._emit(DraftFinished, draft=draft.number, tokens=tokens, end=end)

    def _make_room(self, rows: int) -> bool:
        """Whether so many more cells may be used, after giving up parked ones if need be."""
        if self._cells() + rows > self._max_cells and self._parked_cells:
            self._memory.drop(self._parked)
            self._parked_cells = 0
        return self._cells() + rows <= self._max_cells

    def _cells(self) -> int:
        own = self._draft.branch.length - self._draft.base if self._draft else 0
        return self._parked_cells + own
