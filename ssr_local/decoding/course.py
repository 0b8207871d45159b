"""One request's course: prefill, think and draft, verify and recover, done.

A course is a state machine without a loop of its own. The scheduler asks it for rows (`plan`),
decodes them together with those of other requests, and hands back the logits (`advance`). It owns
the request's main sequence and knows no threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ssr_local.decoding.branch import Branch, Decision
from ssr_local.decoding.drafting import Drafting
from ssr_local.decoding.format import CourseSpec
from ssr_local.decoding.listener import Listener
from ssr_local.decoding.noise import ANSWER_STREAM, THINKING_STREAM
from ssr_local.decoding.proposer import AnswerProposer, Proposal, Reliability
from ssr_local.decoding.sampling import History, Sampler
from ssr_local.decoding.schedule import DraftSchedule
from ssr_local.decoding.slot import Slot
from ssr_local.decoding.stats import Phase, StatsRecorder
from ssr_local.decoding.suffix_cache import Document, SuffixCache
from ssr_local.errors import SSRError
from ssr_local.events import Finished, FinishReason, Origin, PromptProgress, ThinkingEnd, Usage
from ssr_local.llama.batch import RowBlock
from ssr_local.llama.context import Logits
from ssr_local.llama.memory import SequenceMemory
from ssr_local.llama.vocab import Vocab

MAX_SPAN = 32
"""Most proposed tokens that one step verifies. With the pending row the batch stays below 64 rows,
from where llama.cpp's CPU attention takes another path."""


@dataclass(frozen=True, slots=True)
class Machinery:
    """What all courses of an engine share."""

    vocab: Vocab
    memory: SequenceMemory
    cache: SuffixCache
    schedule: DraftSchedule
    reliability: Reliability
    """What is known about acceptance so far."""


class Course:
    """The state of one running request.

    `emit(type, **fields)` sends an event; whoever made the course adds request id and time.
    """

    def __init__(
        self,
        spec: CourseSpec,
        sampler: Sampler,
        slot: Slot,
        machinery: Machinery,
        emit: Callable[..., None],
    ) -> None:
        self._spec = spec
        self._slot = slot
        self._vocab = machinery.vocab
        self._memory = machinery.memory
        self._cache = machinery.cache if spec.suffixes else None
        self._reliability = machinery.reliability
        self._emit = emit
        self._listener = Listener(spec, machinery.vocab, emit)
        self._reused = slot.reuse(spec.prompt, machinery.memory)
        self._main = Branch(
            slot.main,
            spec.prompt,
            self._reused,
            sampler=sampler,
            history=History(spec.prompt),
            stream=THINKING_STREAM if spec.thinking else ANSWER_STREAM,
        )
        self._drafting = self._make_drafting(sampler, machinery.schedule)
        self._thoughts = self._remember_prompt()
        self._proposer: AnswerProposer | None = None
        self._proposal = Proposal.empty()
        self._lead: tuple[int, ...] = ()
        self._answer_now = False
        self._thinking_tokens = self._answer_tokens = 0
        self.stats = StatsRecorder()
        self.phase = Phase.PREFILL
        self.finish_reason: FinishReason | None = None
        self.error: SSRError | None = None

    def _make_drafting(self, sampler: Sampler, schedule: DraftSchedule) -> Drafting | None:
        if self._spec.thinking is None or not self._spec.drafts:
            return None
        return Drafting(
            slot=self._slot,
            schedule=schedule,
            format=self._spec.thinking,
            sampler=sampler,
            memory=self._memory,
            vocab=self._vocab,
            cache=self._cache,
            reliability=self._reliability,
            emit=self._emit,
        )

    def _remember_prompt(self) -> Document | None:
        """Put the new part of the prompt in the suffix cache (the rest is there already), and open
        a document for the CoT."""
        if self._cache is None:
            return None
        for text in (self._spec.prompt[self._reused :], self._spec.prediction):
            self._cache.document().extend(text)
        return self._cache.document()

    # Rows out

    def plan(self, max_rows: int) -> list[RowBlock]:
        """The rows of the next step: the main sequence's, then the draft's.

        Changes nothing that a second call would not find again, so that an interrupted step can be
        planned anew. The main row comes first: so its cells lie below those that a draft gives back
        when rows are rejected, and stay in the order of their positions.
        """
        if self._proposer:
            self._proposal = self._proposer.propose(self._max_span(max_rows))
        main = self._main.block(max_rows, self._proposal.tokens)
        draft = None
        if self._drafting and self.phase is Phase.THINKING:
            draft = self._drafting.block(max_rows - len(main))
        return [main, draft] if draft else [main]

    def _max_span(self, max_rows: int) -> int:
        """A span may not outgrow the batch, the context, or what may still be answered."""
        room = min(
            self._spec.n_ctx - len(self._main.tokens) - 1,
            max_rows - self._main.n_pending,
            MAX_SPAN,
        )
        if self._spec.max_tokens is not None:
            room = min(room, self._spec.max_tokens - self._generated - 1)
        return max(room, 0)

    @property
    def _generated(self) -> int:
        return self._thinking_tokens + self._answer_tokens

    # Logits in

    def advance(self, logits: Sequence[Logits]) -> None:
        """Take what the planned rows brought: one array per block.

        Raises:
            BackendError: the model's logits are not numbers.
        """
        self.stats.step(self.phase)
        self._advance_main(logits[0])
        if self._drafting and self.phase is Phase.THINKING:
            if len(logits) > 1:
                self._drafting.advance(logits[1])
            if self._listener.in_thinking:
                self._drafting.consider(self._main, self._thinking_tokens)
        self._listener.flush_answer()
        if self.finish_reason:
            self._finish()

    def _advance_main(self, logits: Logits) -> None:
        if self.phase is Phase.PREFILL:
            self._note_prompt(complete=len(logits) > 0)
        if len(logits) == 0:
            self._main.settle(self._memory, ())
        elif self.phase is Phase.THINKING:
            self._think(logits)
        else:
            self._answer(logits)

    def _note_prompt(self, *, complete: bool) -> None:
        total = len(self._spec.prompt)
        processed = total if complete else self._main.length_after_step
        self._emit(PromptProgress, processed=processed, total=total, reused=self._reused)
        if complete:
            self.phase = Phase.THINKING if self._spec.thinking else Phase.ANSWER

    def answer_now(self) -> None:
        """End the thinking at the next step."""
        self._answer_now = True

    def cancel(self) -> None:
        """End the request where it stands."""
        self.finish_reason = "cancelled"
        self._finish()

    def fail(self, error: SSRError) -> None:
        """End the request because of an error; what its sequences hold is not to be trusted."""
        self.error = error
        self.phase = Phase.DONE
        self._slot.clear(self._memory)

    @property
    def ended(self) -> bool:
        return self.phase is Phase.DONE

    # Thinking

    def _think(self, logits: Logits) -> None:
        following: list[int] = []
        self._close_if_due(following)
        if self.phase is Phase.THINKING:
            for decision in self._main.decide(logits):
                if not self._take_thought(decision, following):
                    break
        self._main.settle(self._memory, following)
        if self.phase is Phase.ANSWER:
            self._start_proposing()

    def _take_thought(self, decision: Decision, following: list[int]) -> bool:
        """Add a decided token to the CoT; whether the step may go on."""
        if self._vocab.is_end(decision.token):
            # The end of the turn ends a prompted profile's thinking. A native model that forgets
            # to close is helped to its answer.
            self._force_close(following, "closed")
            return False
        following.append(decision.token)
        self._thinking_tokens += 1
        if self._thoughts:
            self._thoughts.append(decision.token)
        self._listener.hear_thought(decision.token)
        if not self._listener.thinking_expected:
            self._model_closed()
        elif self._generated == self._spec.max_tokens:
            self.finish_reason = "length"
        else:
            self._close_if_due(following)
        return self.phase is Phase.THINKING and not self.finish_reason

    def _model_closed(self) -> None:
        """The model ended its thinking by itself, or never began it."""
        assert self._spec.thinking
        if self._listener.never_thought:
            self._answer_tokens, self._thinking_tokens = self._thinking_tokens, 0
            self.stats.by_origin[Origin.MODEL] += self._answer_tokens
        else:
            self._lead = self._spec.thinking.lead_tokens
        self._enter_answer("closed", position=0)

    def _close_if_due(self, following: list[int]) -> None:
        budget = self._spec.thinking_budget
        if self._answer_now:
            self._force_close(following, "answer-now")
        elif budget is not None and self._thinking_tokens >= budget:
            self._force_close(following, "budget")
        elif len(self._main.tokens) + len(following) >= self._spec.max_thinking_length:
            self._force_close(following, "context")

    def _force_close(self, following: list[int], reason: ThinkingEnd) -> None:
        """Write the close for the model, and its opening if it had not even begun."""
        format = self._spec.thinking
        assert format
        if not self._listener.in_thinking:
            following.extend(format.open_tokens)
        following.extend(format.forced_tokens)
        self._listener.hear_forced_close()
        self._enter_answer(reason, position=len(format.lead_tokens))

    def _enter_answer(self, reason: ThinkingEnd, position: int) -> None:
        self._listener.end_thinking(self._thinking_tokens, reason)
        self._main.restart(ANSWER_STREAM, position)
        if self._drafting:
            self._drafting.stop()
            self.stats.drafts = self._drafting.finished
        self.phase = Phase.ANSWER

    # Answer

    def _start_proposing(self) -> None:
        """Begin to speculate on the answer, from the newest draft where there is one."""
        if not (self._spec.drafts or self._spec.suffixes):
            return
        draft = self._drafting.best if self._drafting else []
        draft = draft or list(self._spec.prediction)
        self._proposer = AnswerProposer(
            self._cache,
            self._main.tokens,
            [*self._lead, *draft],
            reliability=self._reliability,
        )

    def _answer(self, logits: Logits) -> None:
        following: list[int] = []
        decided = 0
        for decision in self._main.decide(logits):
            decided += 1
            if not self._take_answer(decision, following):
                break
        self._main.settle(self._memory, following)
        self.stats.answer_step(len(self._proposal.tokens), decided)
        if self._proposer:
            self._proposer.advance(following)
        else:
            self._start_proposing()

    def _take_answer(self, decision: Decision, following: list[int]) -> bool:
        """Add a decided token to the answer; whether the step may go on."""
        if self._vocab.is_end(decision.token):
            self.finish_reason = "stop"
            return False
        following.append(decision.token)
        self._answer_tokens += 1
        origin = self._proposal.origin if decision.accepted else Origin.MODEL
        match_length = self._proposal.match_length if decision.accepted else 0
        self.stats.by_origin[origin] += 1
        if self._listener.hear_answer(decision.token, origin, match_length):
            self.finish_reason = "stop"
        elif self._generated == self._spec.max_tokens or self._is_full(following):
            self.finish_reason = "length"
        return not self.finish_reason

    def _is_full(self, following: Sequence[int]) -> bool:
        return len(self._main.tokens) + len(following) >= self._spec.n_ctx

    # The end

    def _finish(self) -> None:
        self.phase = Phase.DONE
        self._listener.finish()
        if self._drafting:
            self._drafting.stop()
            self._drafting.release()
            self.stats.drafts = self._drafting.finished
        self._slot.tokens = self._main.tokens[: self._main.length]

    def report(self, queue_seconds: float, single_row_seconds: float | None) -> None:
        """Emit the final event. Apart from `_finish`, so that the slot is free before anyone
        hears of it."""
        assert self.finish_reason
        self.stats.seconds = replace(self.stats.seconds, queue=queue_seconds)
        usage = Usage(
            prompt_tokens=len(self._spec.prompt),
            prompt_tokens_reused=self._reused,
            reasoning_tokens=self._thinking_tokens,
            answer_tokens=self._answer_tokens,
        )
        stats = self.stats.summary(single_row_seconds, plain_steps=self._generated)
        self._emit(Finished, finish_reason=self.finish_reason, usage=usage, stats=stats)
