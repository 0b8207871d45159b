"""Engines that several chat models share: loaded once, at first use, closed by the last user.

LangChain makes chat models freely (copies, configurable ones for each call), so a model stays
loaded while it may be wanted again: until its last user closes it, another model is loaded and
nobody uses this one any more, or the program ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from weakref import WeakSet

from ssr_local.default_model import prepare
from ssr_local.engine import Engine
from ssr_local.registry import ResolvedModel
from ssr_local.settings import EngineSettings

_logger = logging.getLogger("langchain_ssr")


@dataclass(frozen=True, slots=True)
class Wanted:
    """An engine as a chat model asks for it."""

    model: str | None
    settings: EngineSettings
    process: int = field(default_factory=os.getpid)
    """A forked process can't use the engines that it inherits."""


class Lease:
    """One user's hold on a shared engine. Copied and pickled, it holds nothing."""

    def __init__(self) -> None:
        self.held: tuple[Wanted, Engine] | None = None

    def __reduce__(self) -> tuple[type[Lease], tuple[()]]:
        return Lease, ()


@dataclass(eq=False, slots=True)
class _Shared:
    engine: Engine
    answers: set[Wanted]
    """What was asked for and led here: one model may be wanted by name, path, or as default."""
    holders: WeakSet[Lease] = field(default_factory=WeakSet)


class SharedEngines:
    """The engines of this process that chat models loaded. Safe from any thread.

    Loading happens under the lock: two models at once may not fit in memory.
    """

    def __init__(self, load: Callable[[ResolvedModel, EngineSettings], Engine] = Engine) -> None:
        self._load = load
        self._all: list[_Shared] = []
        self._lock = threading.Lock()

    def engine(self, lease: Lease, wanted: Wanted) -> Engine:
        """The engine for a lease, loaded if need be; that may take long.

        Raises:
            SSRError: the model is not here, damaged, or can't be run.
        """
        held = self.held(lease, wanted)
        if held is not None:
            return held
        with self._lock:
            self._leave(lease)
            shared = self._find(wanted) or self._add(wanted)
            shared.holders.add(lease)
            lease.held = wanted, shared.engine
            return shared.engine

    def held(self, lease: Lease, wanted: Wanted) -> Engine | None:
        """The lease's engine, if it is loaded and still what is wanted. Returns at once."""
        held = lease.held
        return held[1] if held and held[0] == wanted else None

    def close(self, lease: Lease) -> None:
        """Give up a lease; the engine is closed if nobody else holds it."""
        with self._lock:
            self._leave(lease)

    def close_all(self) -> None:
        """Close everything that this process loaded."""
        with self._lock:
            while self._all:
                self._all.pop().engine.close()

    # Under the lock

    def _find(self, wanted: Wanted) -> _Shared | None:
        return next((shared for shared in self._all if wanted in shared.answers), None)

    def _add(self, wanted: Wanted) -> _Shared:
        resolved = prepare(wanted.model, notify=_logger.warning, on_progress=lambda _: None)
        same = replace(wanted, model=str(resolved.path.resolve()))
        shared = self._find(same)
        if shared is None:
            self._drop_unused()
            shared = _Shared(self._load(resolved, wanted.settings), {same})
            self._all.append(shared)
        shared.answers.add(wanted)
        return shared

    def _drop_unused(self) -> None:
        for shared in [shared for shared in self._all if not shared.holders]:
            self._drop(shared)

    def _leave(self, lease: Lease) -> None:
        lease.held = None
        for shared in [shared for shared in self._all if lease in shared.holders]:
            shared.holders.discard(lease)
            if not shared.holders:
                self._drop(shared)

    def _drop(self, shared: _Shared) -> None:
        self._all.remove(shared)
        shared.engine.close()


SHARED = SharedEngines()
atexit.register(SHARED.close_all)
