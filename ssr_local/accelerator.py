"""GPUs that the machine has and this build of llama.cpp can't use, and the command that helps.

A plain `pip install` builds llama-cpp-python for the CPU (and Metal on macOS). That it leaves a
graphics card idle is the most common reason for disappointing speed, so it is looked for and said.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[list[str]], str | None]


@dataclass(frozen=True, slots=True)
class IdleGPU:
    """A GPU outside this build's reach; `reinstall` is a shell command."""

    name: str
    reinstall: str
    needs: str


def run_quietly(command: list[str]) -> str | None:
    """What a command prints, or None if it isn't there, fails, or takes over 5 seconds."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def idle_gpus(
    backends: Collection[str],
    version: str,
    *,
    run: Run = run_quietly,
    root: Path = Path("/"),
    system: str = sys.platform,
    machine: str = platform.machine(),
) -> list[IdleGPU]:
    """GPUs seen by the system's own tools whose backend is not in the build.

    Args:
        backends: names of the build's backends, as ggml has them (CUDA, MTL, ROCm, Vulkan).
        version: of llama-cpp-python, to reinstall just that one.
    """
    have = {name.upper() for name in backends}
    found = []
    if not have & {"CUDA", "VULKAN"} and (nvidia := _nvidia(run)):
        found.append(_idle(nvidia, "-DGGML_CUDA=on", version, "the CUDA toolkit (nvcc)"))
    if not have & {"ROCM", "HIP", "VULKAN"} and (root / "dev/kfd").exists():
        found.append(_idle("AMD GPU", "-DGGML_HIP=on", version, "ROCm (hipcc)"))
    if not have & {"MTL", "METAL"} and system == "darwin" and machine == "arm64":
        found.append(_idle("Apple GPU", "-DGGML_METAL=on", version, "Xcode's command line tools"))
    if not found and have <= {"CPU", "BLAS"} and (other := _vulkan(run)):
        found.append(_idle(other, "-DGGML_VULKAN=on", version, "the Vulkan SDK (glslc)"))
    return found


def reinstall_command(flag: str, version: str, system: str = sys.platform) -> str:
    """How to build llama-cpp-python anew with a backend; pip's cache knows nothing of flags."""
    install = f"pip install --force-reinstall --no-cache-dir llama-cpp-python=={version}"
    if system == "win32":
        return f'$env:CMAKE_ARGS="{flag}"; {install}'
    return f'CMAKE_ARGS="{flag}" {install}'


def _idle(name: str, flag: str, version: str, needs: str) -> IdleGPU:
    return IdleGPU(name, reinstall_command(flag, version), needs)


def _nvidia(run: Run) -> str | None:
    """Names and memory as nvidia-smi gives them, for instance `NVIDIA RTX 4090 (24564 MiB)`."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    cards = []
    for line in (run(query) or "").splitlines():
        name, comma, memory = line.rpartition(",")
        if comma:
            cards.append(f"{name.strip()} ({memory.strip()} MiB)")
    return ", ".join(cards) or None


def _vulkan(run: Run) -> str | None:
    lines = (run(["vulkaninfo", "--summary"]) or "").splitlines()
    names = [line.partition("=")[2].strip() for line in lines if "deviceName" in line]
    real = [name for name in names if "llvmpipe" not in name]  # that one is a CPU in disguise
    return real[0] if real else None
