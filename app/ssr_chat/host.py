"""The one engine of the process: loaded in the background, shared by all tabs, switched politely.

A switch waits until what runs has ended; requests that arrive meanwhile wait for the new model.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from ssr_local import default_model
from ssr_local.download import Progress
from ssr_local.engine import Engine, ModelInfo
from ssr_local.errors import BackendError, EngineClosed, SSRError
from ssr_local.generation import Generation
from ssr_local.request import Request
from ssr_local.settings import EngineSettings

_logger = logging.getLogger("ssr_chat")


class ChatEngine(Protocol):
    """What the window needs of an engine."""

    @property
    def info(self) -> ModelInfo: ...
    @property
    def settings(self) -> EngineSettings: ...
    def submit(self, request: Request) -> Generation: ...
    def close(self) -> None: ...


class State(StrEnum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Status:
    """Where the host stands. A new object for every change, so that it can be compared."""

    state: State
    doing: str = ""
    """While loading: what happens, for people."""
    share: float | None = None
    """While loading: how much of it is done, from 0 to 1."""
    note: str | None = None
    """What the choice of the default model has to tell the user."""
    info: ModelInfo | None = None
    error: SSRError | None = None


@dataclass(frozen=True, slots=True)
class Hearing:
    """Where a loader tells what it does."""

    doing: Callable[[str, float | None], None]
    note: Callable[[str], None]


Loader = Callable[[str | None, Hearing], ChatEngine]
"""Loads a model by name or path, or the default one for None. May take minutes."""


class EngineHost:
    """Loads one model at a time and hands requests to it. Safe from any thread."""

    def __init__(self, load: Loader) -> None:
        self._load = load
        self._engine: ChatEngine | None = None
        self._status = Status(State.LOADING, "Starting")
        self._running: set[Generation] = set()
        self._changed = threading.Condition()
        self._loading = threading.Lock()
        self._wanted = 0
        self._asked: str | None = None

    @property
    def status(self) -> Status:
        return self._status

    def switch(self, model: str | None) -> None:
        """Begin to load a model (None for the default one); returns at once.

        Of several switches in a row the last one counts. Asking again for what is loaded, or being
        loaded, does nothing: Gradio reports each choice twice.
        """
        with self._changed:
            if self._wanted and model == self._asked and self._status.state is not State.FAILED:
                return
            self._asked = model
            self._wanted += 1
            number = self._wanted
            self._status = Status(State.LOADING, f"Loading {model or 'the default model'}")
        name = f"ssr-chat-load-{number}"
        threading.Thread(target=self._switch, args=(model, number), name=name, daemon=True).start()

    def submit(self, request: Request) -> Generation:
        """Queue a request on the loaded engine; `release` it when it is over.

        Raises:
            SSRError: no model is loaded (the reason why), or the engine refuses the request.
        """
        with self._changed:
            if self._status.error:
                raise self._status.error
            if self._engine is None or self._status.state is not State.READY:
                raise EngineClosed("No model is loaded at this moment.")
            generation = self._engine.submit(request)
            self._running.add(generation)
        return generation

    def release(self, generation: Generation) -> None:
        """Cancel a request if it still runs, and stop counting it."""
        generation.cancel()
        with self._changed:
            self._running.discard(generation)
            self._changed.notify_all()

    @property
    def busy(self) -> bool:
        """Whether a request that is queued now has to wait for another one."""
        with self._changed:
            slots = self._engine.settings.slots if self._engine else 1
            return len(self._running) >= slots

    def close(self) -> None:
        """Cancel what runs and free the model. Does not wait for a load that is under way."""
        with self._changed:
            self._wanted += 1
            engine, self._engine = self._engine, None
            self._changed.notify_all()
        if engine:
            engine.close()

    # The loading thread

    def _switch(self, model: str | None, number: int) -> None:
        try:
            with self._loading:  # two models at once may not fit
                if self._unload(number):
                    self._adopt(self._load(model, self._hearing(number)), number)
        except SSRError as error:
            self._set(number, state=State.FAILED, error=error)
        except Exception as error:
            _logger.exception("loading %s failed", model)
            problem = BackendError(f"Loading {model or 'the model'} failed: {error!r}")
            self._set(number, state=State.FAILED, error=problem)

    def _unload(self, number: int) -> bool:
        """Wait for running requests, then free the model. False: another switch came after this."""
        with self._changed:
            if self._running:
                self._status = Status(State.LOADING, "Waiting for running answers to end")
            self._changed.wait_for(lambda: not self._running or number != self._wanted)
            if number != self._wanted:
                return False
            engine, self._engine = self._engine, None
        if engine:
            engine.close()
        return True

    def _adopt(self, engine: ChatEngine, number: int) -> None:
        with self._changed:
            if number == self._wanted:
                self._engine = engine
                self._status = Status(State.READY, note=self._status.note, info=engine.info)
                return
        engine.close()

    def _hearing(self, number: int) -> Hearing:
        return Hearing(
            doing=lambda text, share: self._set(number, doing=text, share=share),
            note=lambda text: self._set(number, note=text),
        )

    def _set(self, number: int, **changes: Any) -> None:
        """Change the status on behalf of a load, unless another one came after it."""
        with self._changed:
            if number == self._wanted:
                self._status = replace(self._status, **changes)


def engine_loader(settings: EngineSettings) -> Loader:
    """Loads real engines; fetches the small default model if nothing else is here."""

    def load(model: str | None, hearing: Hearing) -> Engine:
        def fetching(progress: Progress) -> None:
            total = progress.total_bytes
            hearing.doing(progress.what, progress.done_bytes / total if total else None)

        resolved = default_model.prepare(model, notify=hearing.note, on_progress=fetching)
        hearing.doing(f"Loading {resolved.name}", 0.0)
        return Engine(
            resolved, settings, lambda share: hearing.doing(f"Loading {resolved.name}", share)
        )

    return load
