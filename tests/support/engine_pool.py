"""Loaded engines that tests share."""

from __future__ import annotations

from pathlib import Path

from ssr_local.decoding.schedule import GrowingSchedule
from ssr_local.engine import Engine
from ssr_local.settings import EngineSettings

EARLY = GrowingSchedule(first_checkpoint=5, growth=1.7, max_draft_tokens=96)


class EnginePool:
    """Engines by model and settings, loaded when first asked for, closed at the end of the run."""

    def __init__(self) -> None:
        self._engines: dict[tuple[str, EngineSettings], Engine] = {}

    def get(self, model: str | Path, settings: EngineSettings) -> Engine:
        """A loaded engine that remembers nothing of earlier tests. Don't close it.

        It drafts much earlier than usual, so that short texts see forks and refreshes.
        """
        key = (str(model), settings)
        if key not in self._engines:
            self._engines[key] = Engine.load(model, settings, schedule=EARLY)
        engine = self._engines[key]
        engine.forget()
        return engine

    def close(self) -> None:
        while self._engines:
            _, engine = self._engines.popitem()
            engine.close()
