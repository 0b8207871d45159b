"""What all tests share: the environment of the exact recipe, real models, loaded engines.

A test that needs something that is not here (weights, traces) skips and says what is missing.
"""

# ruff: noqa: E402 (the environment comes before the imports)
from __future__ import annotations

import os
import sys

# llama.cpp and OpenMP read these when they are loaded, so they come before every other import.
assert "llama_cpp" not in sys.modules, "too late: llama.cpp was loaded before tests/conftest.py"
os.environ |= {
    "GGML_CPU_TILED_MM": "0",  # part of the exact recipe, see docs/lossless.md
    "GGML_NO_BACKTRACE": "1",  # a failed assertion in llama.cpp would start a debugger
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "passive",  # else steps take up to 3 s while another program runs
}

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engine_pool import EnginePool

from ssr_local import registry
from ssr_local.engine import Engine
from ssr_local.errors import ModelNotFound
from ssr_local.settings import EngineSettings

ROOT = Path(__file__).resolve().parent.parent
MARKERS = {
    "model": "needs real weights (all of tests/model)",
    "ui": "needs a browser (all of tests/ui)",
}


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folders `tests/model` and `tests/ui` carry their marker as a whole."""
    for item in items:
        folder = item.path.parent.name
        if folder in MARKERS:
            item.add_marker(folder)


def path_of(name: str) -> Path:
    """The checked file of a model, or skip the test. A damaged file is a failure, not a skip."""
    try:
        return registry.resolve(name).path
    except ModelNotFound:
        pytest.skip(f"{name} is not on this machine (ssr models pull {name})")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M, Q4_1: the embedded default."""
    return path_of("smollm2-135m")


@pytest.fixture(scope="session")
def coder_path() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct, Q4_K_M."""
    return path_of("qwen2.5-coder-0.5b")


@pytest.fixture(scope="session")
def traces_path() -> Path:
    """The folder of recorded traces: $SSR_TRACES, or `shared/traces` beside the repository."""
    path = Path(os.environ.get("SSR_TRACES", ROOT.parent / "shared" / "traces"))
    if not path.is_dir():
        pytest.skip("no recorded traces here (SSR_TRACES names their folder)")
    return path


@pytest.fixture(scope="session")
def engines() -> Iterator[EnginePool]:
    pool = EnginePool()
    yield pool
    pool.close()


@pytest.fixture
def smollm2(engines: EnginePool, smollm2_path: Path) -> Engine:
    """SmolLM2-135M in the exact recipe."""
    return engines.get(smollm2_path, EngineSettings.exact(n_ctx=2048))
