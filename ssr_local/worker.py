"""The one thread that owns a context: admits requests, steps them, cancels, survives failures.

Other threads only leave messages here. A failure of one request ends that request; a failure of the
backend ends all running ones, clears the context, and the next request works again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ssr_local.decoding.course import Course, Machinery
from ssr_local.decoding.format import CourseSpec
from ssr_local.decoding.proposer import Reliability
from ssr_local.decoding.sampling import Sampler, SamplerSettings
from ssr_local.decoding.schedule import DraftSchedule
from ssr_local.decoding.scheduler import Scheduler
from ssr_local.decoding.slot import Slot
from ssr_local.decoding.stats import StatsRecorder
from ssr_local.decoding.suffix_cache import SuffixCache
from ssr_local.errors import BackendError, EngineClosed, SSRError
from ssr_local.events import Event, Failed, Finished, Usage
from ssr_local.generation import Generation
from ssr_local.llama.context import LlamaContext
from ssr_local.llama.memory import SequenceMemory
from ssr_local.llama.vocab import Vocab

_logger = logging.getLogger("ssr_local.engine")


@dataclass(slots=True)
class Job:
    """A request on its way through the worker."""

    generation: Generation
    spec: CourseSpec
    sampler: SamplerSettings
    submitted: float = field(default_factory=time.perf_counter)
    started: float | None = None
    slot: Slot | None = None
    course: Course | None = None
    cancelled: bool = False

    def emit(self, kind: type[Event], **fields: Any) -> None:
        """Send an event of this request."""
        request_id, now = self.generation.request_id, time.perf_counter() - self.submitted
        self.generation.append(kind(request_id=request_id, time=now, **fields))

    @property
    def queue_seconds(self) -> float:
        return (self.started or time.perf_counter()) - self.submitted


class Worker:
    """Runs jobs on a thread of its own."""

    def __init__(
        self,
        context: LlamaContext,
        vocab: Vocab,
        memory: SequenceMemory,
        *,
        slots: int,
        draft_cells: int,
        schedule: DraftSchedule,
    ) -> None:
        self._context = context
        self._vocab = vocab
        self._memory = memory
        self._schedule = schedule
        self._scheduler = Scheduler(context, memory)
        self._machinery = self._fresh_machinery()
        self._free = [Slot(number, draft_cells) for number in range(slots)]
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._wanted: deque[Callable[[], None]] = deque()
        self._news = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ssr-engine", daemon=True)
        self._thread.start()

    def _fresh_machinery(self) -> Machinery:
        return Machinery(self._vocab, self._memory, SuffixCache(), self._schedule, Reliability())

    # Called by other threads

    @property
    def closed(self) -> bool:
        return self._closing

    def submit(self, job: Job) -> None:
        with self._news:
            if self._closing:
                raise EngineClosed("The engine is closed.")
            self._waiting.append(job)
            self._news.notify()

    def cancel(self, request_id: str) -> None:
        with self._news:
            for job in (*self._waiting, *self._running):
                if job.generation.request_id == request_id:
                    job.cancelled = True
                    self._context.interrupt()
            self._news.notify()

    def answer_now(self, request_id: str) -> None:
        with self._news:
            for job in self._running:
                if job.generation.request_id == request_id and job.course:
                    job.course.answer_now()

    def forget(self) -> None:
        """Drop KV and suffix cache once nothing runs; returns when that is done."""
        done = threading.Event()

        def wipe() -> None:
            self._wipe()
            done.set()

        with self._news:
            if self._closing:
                raise EngineClosed("The engine is closed.")
            self._wanted.append(wipe)
            self._news.notify()
        done.wait()

    def close(self) -> None:
        """Cancel all, end the thread, free the context."""
        with self._news:
            self._closing = True
            self._context.interrupt()
            self._news.notify()
        self._thread.join()

    # The worker's own thread

    def _run(self) -> None:
        try:
            while self._gather():
                if self._running:
                    self._step()
        finally:
            with self._news:
                self._closing = True
            self._fail_all(EngineClosed("The engine was closed while the request ran."))
            for wish in self._wanted:
                wish()
            self._context.close()

    def _gather(self) -> bool:
        """Wait for work, drop what was cancelled, admit what waits. False: the engine closes."""
        with self._news:
            while not (self._running or self._waiting or self._wanted or self._closing):
                self._news.wait()
            if self._closing:
                return False
            # From here on an interrupt stops the next decode, and its cause is seen next time.
            self._context.clear_interrupt()
            dropped = [job for job in (*self._running, *self._waiting) if job.cancelled]
            for job in dropped:
                (self._running if job in self._running else self._waiting).remove(job)
            if not self._running:
                while self._wanted:
                    self._wanted.popleft()()
            admitted = self._admit() if not self._wanted else []
        for job in dropped:
            self._drop(job)
        for job, slot in admitted:
            self._start(job, slot)
        return True

    def _admit(self) -> list[tuple[Job, Slot]]:
        """Give waiting jobs the free slots that hold most of their prompt."""
        admitted = []
        while self._waiting and self._free:
            job = self._waiting.popleft()
            slot = max(self._free, key=lambda slot: slot.overlap(job.spec.prompt))
            self._free.remove(slot)
            self._running.append(job)
            admitted.append((job, slot))
        return admitted

    def _start(self, job: Job, slot: Slot) -> None:
        job.started = time.perf_counter()
        job.slot = slot
        job.course = Course(job.spec, Sampler(job.sampler), slot, self._machinery, job.emit)

    def _step(self) -> None:
        try:
            self._scheduler.step([job.course for job in self._running if job.course])
        except SSRError as error:
            self._fail_running(error)
        except Exception as error:
            _logger.exception("the engine failed in a step")
            self._fail_running(BackendError(f"the engine failed: {error!r}"))
        for job in [job for job in self._running if job.course and job.course.ended]:
            with self._news:
                self._running.remove(job)
            self._finish(job)

    def _drop(self, job: Job) -> None:
        """End a cancelled job."""
        if job.course:
            job.course.cancel()
            self._finish(job)
        else:
            usage = Usage(
                prompt_tokens=len(job.spec.prompt),
                prompt_tokens_reused=0,
                reasoning_tokens=0,
                answer_tokens=0,
            )
            stats = StatsRecorder().summary(None, plain_steps=0)
            job.emit(Finished, finish_reason="cancelled", usage=usage, stats=stats)

    def _finish(self, job: Job) -> None:
        """Free an ended job's slot, then tell its readers."""
        assert job.course
        assert job.slot
        with self._news:
            self._free.append(job.slot)
        if job.course.error:
            job.emit(Failed, error=job.course.error)
        else:
            job.course.report(job.queue_seconds, self._scheduler.single_row_seconds())

    def _fail_running(self, error: SSRError) -> None:
        """The context is in doubt: end what runs, and begin again with an empty one."""
        for job in self._running:
            if job.course:
                job.course.fail(error)
        self._context.clear()

    def _fail_all(self, error: SSRError) -> None:
        with self._news:
            jobs = [*self._running, *self._waiting]
            self._running.clear()
            self._waiting.clear()
        for job in jobs:
            job.emit(Failed, error=error)

    def _wipe(self) -> None:
        """Forget everything kept from earlier requests. Only while nothing runs."""
        for slot in self._free:
            slot.clear(self._memory)
        self._machinery = self._fresh_machinery()
