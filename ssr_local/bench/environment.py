"""Where a benchmark ran: machine, versions, model file, settings. A figure without it says nothing.

No paths of this machine: the JSON is meant to be shared.
"""

from __future__ import annotations

import dataclasses
import platform
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ssr_local.device import physical_cores, processor_name, this_machine
from ssr_local.engine import ModelInfo
from ssr_local.llama import backends
from ssr_local.model_files import hash_file
from ssr_local.settings import EngineSettings


def environment(
    info: ModelInfo, settings: EngineSettings, arguments: Sequence[str]
) -> dict[str, Any]:
    """All of it, as plain data. Reads the model file in full for its sha256."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["ssr", *arguments]),
        "machine": machine(),
        "versions": versions(),
        "model": model(info),
        "settings": settings.model_dump(mode="json"),
        "threads": settings.threads or physical_cores(),
    }


def machine() -> dict[str, Any]:
    here = this_machine()
    return {
        "platform": platform.platform(),
        "processor": processor_name(),
        "cores": here.cores,
        "memory_bytes": here.memory.total,
        "gpus": [dataclasses.asdict(gpu) for gpu in here.gpus],
        "cpu_features": backends.cpu_features(),
    }


def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "ssr-local": version("ssr-local"),
        "llama-cpp-python": backends.version(),
    }


def model(info: ModelInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "file": Path(info.path).name,
        "description": info.description,
        "bytes": info.path.stat().st_size,
        "sha256": hash_file(info.path),
        "n_ctx": info.n_ctx,
        "speculates": info.speculates,
    }
