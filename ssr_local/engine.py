"""The engine's public face: load a model, submit requests, read their events.

One worker thread owns the context (`ssr_local.worker`); this module is what other threads call.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ssr_local.decoding.schedule import DraftSchedule, GrowingSchedule
from ssr_local.device import physical_cores
from ssr_local.errors import EngineClosed
from ssr_local.events import Event
from ssr_local.generation import Completion, Generation
from ssr_local.gguf import read_header
from ssr_local.llama.context import LlamaContext
from ssr_local.llama.memory import AttentionMemory, RecurrentMemory
from ssr_local.llama.model import LlamaModel
from ssr_local.preparation import GENERAL_SAMPLING, Preparation
from ssr_local.registry import ResolvedModel, resolve
from ssr_local.request import Request, Sampling, Thinking
from ssr_local.settings import EngineSettings
from ssr_local.sizing import ContextSize, context_size
from ssr_local.worker import Job, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What was loaded, and what it can do."""

    name: str
    path: Path
    description: str
    """llama.cpp's own: architecture, size, quantization."""
    n_ctx: int
    """Tokens that one request may hold."""
    n_ctx_train: int
    thinking: Thinking
    """What a request with `Thinking.AUTO` gets."""
    speculates: bool
    sampling: Sampling
    """What is used where a request says nothing."""


class Engine:
    """A loaded model that serves requests, several at a time if it has several slots.

        with Engine.load("qwen3-8b") as engine:
            for event in engine.stream(Request.of("Why is the sky blue?")):
                ...

    Safe to use from several threads. Close it when done: the weights are freed then.
    """

    def __init__(
        self,
        model: ResolvedModel,
        settings: EngineSettings,
        on_progress: Callable[[float], None] | None = None,
        schedule: DraftSchedule | None = None,
    ) -> None:
        self.settings = settings
        self._owner = os.getpid()
        self._numbers = itertools.count(1)
        size = context_size(read_header(model.path), settings)
        self._model = LlamaModel(model.path, settings, on_progress)
        try:
            context = self._make_context(size)
            speculates = not self._model.is_recurrent
            self._preparation = self._prepare(model, size, speculates)
            self._worker = Worker(
                context,
                self._model.vocab,
                AttentionMemory(context) if speculates else RecurrentMemory(context),
                slots=settings.slots,
                draft_cells=size.draft_cells,
                schedule=schedule or GrowingSchedule(),
            )
        except BaseException:
            self._model.close()
            raise
        self.info = self._describe(model, size, speculates)

    @classmethod
    def load(
        cls,
        model: str | Path,
        settings: EngineSettings | None = None,
        *,
        on_progress: Callable[[float], None] | None = None,
        schedule: DraftSchedule | None = None,
    ) -> Engine:
        """Load a model by registry name or path of a `.gguf` file.

        Args:
            on_progress: called with the share of the weights that is loaded, from 0 to 1.
            schedule: when to draft beside thinking; None for checkpoints at a growing distance.

        Raises:
            ModelNotFound: no such name, or it was not downloaded yet (`ssr models pull NAME`).
            ModelCorrupt: the file is damaged.
            UnsupportedModel: llama.cpp can't run it, or memory does not suffice.
        """
        return cls(resolve(str(model)), settings or EngineSettings(), on_progress, schedule)

    # Requests

    def submit(self, request: Request) -> Generation:
        """Queue a request; it runs as soon as a slot is free.

        Raises:
            InvalidRequest, ContextOverflow: nothing was queued.
            EngineClosed: the engine is closed, or this process is a fork of the engine's.
        """
        self._check_process()
        spec = self._preparation.spec(request)
        sampler = self._preparation.sampler_settings(request)
        generation = Generation(f"request-{next(self._numbers)}", self._worker)
        self._worker.submit(Job(generation, spec, sampler))
        return generation

    def stream(self, request: Request) -> Iterator[Event]:
        """The request's events. Leaving the loop early cancels the request."""
        with self.submit(request) as generation:
            yield from generation

    async def astream(self, request: Request) -> AsyncIterator[Event]:
        """`stream`, asynchronously; cancelling the task cancels the request."""
        with self.submit(request) as generation:
            async for event in generation:
                yield event

    def generate(self, request: Request) -> Completion:
        """Run a request to its end. Ctrl-C cancels it."""
        with self.submit(request) as generation:
            return generation.result()

    async def agenerate(self, request: Request) -> Completion:
        """`generate`, awaited; cancelling the task cancels the request."""
        with self.submit(request) as generation:
            return await generation.aresult()

    # Tokens

    def tokenize(self, text: str) -> list[int]:
        """Token ids of plain text."""
        self._check_process()
        return self._model.vocab.tokenize(text)

    def detokenize(self, tokens: list[int]) -> str:
        """The text of tokens, control tokens left out."""
        self._check_process()
        return self._model.vocab.text(tokens)

    def count_prompt_tokens(self, request: Request) -> int:
        """Length of the request's prompt, as the model would read it."""
        self._check_process()
        return len(self._preparation.spec(request).prompt)

    # Life

    def forget(self) -> None:
        """Drop everything kept from earlier requests: KV of earlier turns and the suffix cache.

        Running requests are finished first; returns when it is done.
        """
        self._check_process()
        self._worker.forget()

    def close(self) -> None:
        """Cancel what runs, free context and weights. May be called twice."""
        if os.getpid() == self._owner:
            self._worker.close()
            self._model.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_process(self) -> None:
        if os.getpid() != self._owner:
            raise EngineClosed(
                "This process was forked from the one that loaded the model; an engine can't be "
                "shared that way. Load the model in this process, or start workers with 'spawn'."
            )
        if self._worker.closed:
            raise EngineClosed("The engine is closed.")

    # Set-up

    def _make_context(self, size: ContextSize) -> LlamaContext:
        return LlamaContext(
            self._model,
            self.settings,
            n_cells=size.n_cells,
            n_sequences=size.n_sequences,
            threads=self.settings.threads or physical_cores(),
            max_logit_rows=size.max_logit_rows,
        )

    def _prepare(self, model: ResolvedModel, size: ContextSize, speculates: bool) -> Preparation:
        entry = model.entry
        return Preparation(
            self._model.vocab,
            template_source=self._model.chat_template(),
            recommended=entry.sampling if entry else GENERAL_SAMPLING,
            recommended_off=entry.sampling_for(thinking=False) if entry else GENERAL_SAMPLING,
            default_thinking=entry.profile if entry else Thinking.AUTO,
            n_ctx=size.n_ctx,
            speculates=speculates,
        )

    def _describe(self, model: ResolvedModel, size: ContextSize, speculates: bool) -> ModelInfo:
        return ModelInfo(
            name=model.name,
            path=model.path,
            description=self._model.description,
            n_ctx=size.n_ctx,
            n_ctx_train=self._model.n_ctx_train,
            thinking=self._preparation.profile(Thinking.AUTO).mode,
            speculates=speculates,
            sampling=self._preparation.recommended_for(Thinking.AUTO),
        )
