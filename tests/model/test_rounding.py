"""In default settings speculation may turn a choice only where two tokens are practically tied.

docs/lossless.md has the figures. The number of differences is reported, not bounded: it is
llama.cpp's rounding between batches of different sizes.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import pytest

PROGRAM = Path(__file__).with_name("rounding.py")
LARGEST = {"Q4_K_M": 0.64, "BF16": 0.10}
"""The largest difference of a logit between a batch and a single row that was measured."""


def differences(path: Path) -> list[dict[str, float]]:
    environment = {k: v for k, v in os.environ.items() if k != "GGML_CPU_TILED_MM"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(path)],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(done.stdout)
    gaps = sorted(round(difference["gap"], 3) for difference in found["differences"])
    warnings.warn(
        f"{path.name}: {len(gaps)} of {found['runs']} runs differ, at gaps of {gaps}", stacklevel=2
    )
    return found["differences"]


@pytest.fixture
def bf16_path(coder_path: Path) -> Iterator[Path]:
    """The same weights as BF16, written by llama.cpp's own quantizer."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_BF16
    params.allow_requantize = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "coder-bf16.gguf")
        assert not llama_cpp.llama_model_quantize(
            str(coder_path).encode(), str(path).encode(), ctypes.byref(params)
        )
        yield path


@pytest.mark.timeout(600)
def test_every_difference_with_k_quants_is_a_tie(coder_path: Path) -> None:
    assert all(d["gap"] < LARGEST["Q4_K_M"] for d in differences(coder_path))


@pytest.mark.timeout(600)
def test_every_difference_with_bf16_is_a_tie(bf16_path: Path) -> None:
    assert all(d["gap"] < LARGEST["BF16"] for d in differences(bf16_path))
