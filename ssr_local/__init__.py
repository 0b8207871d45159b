"""SSR Local: local reasoning models that answer sooner, with the answer they would have given.

    from ssr_local import Engine, Request

    with Engine.load("qwen3-8b") as engine:
        for event in engine.stream(Request.of("Why is the sky blue?")):
            ...

`Engine` and what belongs to it are loaded at first use, so that the rest (types, registry, command
line) comes without llama.cpp.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ssr_local.errors import (
    BackendError,
    ContextOverflow,
    DownloadFailed,
    EngineClosed,
    InvalidRequest,
    ModelCorrupt,
    ModelNotFound,
    SSRError,
    UnsupportedModel,
)
from ssr_local.events import (
    AnswerDelta,
    DraftDelta,
    DraftFinished,
    DraftStarted,
    DraftStats,
    Event,
    Failed,
    Finished,
    Origin,
    PhaseSeconds,
    PromptProgress,
    ReasoningDelta,
    SpeculationStats,
    ThinkingEnded,
    Usage,
)
from ssr_local.request import Message, Policy, Request, Sampling, Thinking
from ssr_local.settings import EngineSettings, KVType

if TYPE_CHECKING:
    from ssr_local.engine import Engine, ModelInfo
    from ssr_local.generation import Completion, Generation

__version__ = version("ssr-local")

__all__ = [
    "AnswerDelta",
    "BackendError",
    "Completion",
    "ContextOverflow",
    "DownloadFailed",
    "DraftDelta",
    "DraftFinished",
    "DraftStarted",
    "DraftStats",
    "Engine",
    "EngineClosed",
    "EngineSettings",
    "Event",
    "Failed",
    "Finished",
    "Generation",
    "InvalidRequest",
    "KVType",
    "Message",
    "ModelCorrupt",
    "ModelInfo",
    "ModelNotFound",
    "Origin",
    "PhaseSeconds",
    "Policy",
    "PromptProgress",
    "ReasoningDelta",
    "Request",
    "SSRError",
    "Sampling",
    "SpeculationStats",
    "Thinking",
    "ThinkingEnded",
    "UnsupportedModel",
    "Usage",
    "__version__",
]

_LATER = {
    "Engine": "ssr_local.engine",
    "ModelInfo": "ssr_local.engine",
    "Completion": "ssr_local.generation",
    "Generation": "ssr_local.generation",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'ssr_local' has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = found = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
