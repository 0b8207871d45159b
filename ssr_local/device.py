"""The machine as this process may use it: cores and memory, within affinity and cgroup limits.

Memory is in bytes. A container that is given 2 of 64 cores and 4 of 256 GB must not plan for 64
and 256, so the limits of the process come before the figures of the machine.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from ssr_local.llama.backends import Device

_ROOT = Path("/")
_UNLIMITED = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2**63."""


@dataclass(frozen=True, slots=True)
class Memory:
    total: int
    available: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What a model may be loaded into."""

    cores: int
    memory: Memory
    gpus: tuple[Device, ...]

    @property
    def gpu_memory_total(self) -> int:
        return sum(gpu.memory_total for gpu in self.gpus)

    @property
    def gpu_memory_free(self) -> int:
        return sum(gpu.memory_free for gpu in self.gpus)

    @property
    def unified_memory(self) -> bool:
        """Whether the GPUs use the machine's own memory (Apple silicon, integrated GPUs)."""
        return any(gpu.kind == "integrated gpu" or gpu.name.startswith("MTL") for gpu in self.gpus)


def this_machine() -> Machine:
    """Look at the machine now; loads llama.cpp to see its devices."""
    from ssr_local.llama import backends

    gpus = tuple(device for device in backends.devices() if device.is_gpu)
    return Machine(physical_cores(), memory(), gpus)


def physical_cores(root: Path = _ROOT) -> int:
    """Cores that this process may keep busy: no hyper-threads, within affinity and CPU quota.

    On Apple silicon the efficiency cores don't count: a step waits for the slowest thread.
    """
    allowed = _allowed_cpus()
    cores = _performance_cores() or _distinct_cores(allowed, root) or psutil.cpu_count(False)
    quota = cpu_quota(root)
    limits = [cores or len(allowed), len(allowed)]
    if quota is not None:
        limits.append(max(1, math.floor(quota + 0.5)))
    return max(1, min(limits))


def memory(root: Path = _ROOT) -> Memory:
    """Memory in total and free for use, as far as the cgroups of the process allow."""
    whole = psutil.virtual_memory()
    total, available = int(whole.total), int(whole.available)
    for limit, used in _memory_limits(root):
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return Memory(total, available)


def cpu_quota(root: Path = _ROOT) -> float | None:
    """CPUs' worth of time that the cgroups allow, or None for no limit."""
    quotas = [quota for folder in _cgroups("cpu", root) if (quota := _quota_in(folder)) is not None]
    return min(quotas, default=None)


def processor_name(root: Path = _ROOT) -> str:
    """The CPU's name for people; `platform` knows it on few systems."""
    try:
        lines = (root / "proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _allowed_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _distinct_cores(cpus: set[int], root: Path) -> int:
    """How many different cores the CPUs belong to, from Linux's topology; 0 if it doesn't say."""
    cores = set()
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        package, core = (_text(topology / name) for name in ("physical_package_id", "core_id"))
        if core is None:
            return 0
        cores.add((package, core))
    return len(cores)


def _performance_cores() -> int:
    if sys.platform != "darwin":
        return 0
    command = ["sysctl", "-n", "hw.perflevel0.physicalcpu"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        return int(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def _cgroups(controller: str, root: Path) -> Iterator[Path]:
    """Folders of the process's cgroup and its ancestors, for cgroup v2 and for v1."""
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            yield from _with_ancestors(root / "sys/fs/cgroup", path)
        elif controller in controllers.split(","):
            yield from _with_ancestors(root / "sys/fs/cgroup" / controller, path)


def _with_ancestors(mount: Path, path: str) -> Iterator[Path]:
    """Inside a container the path is often the host's, and doesn't exist: the mount always does."""
    folder = mount / path.strip("/")
    while folder != mount and mount in folder.parents:
        yield folder
        folder = folder.parent
    yield mount


def _quota_in(folder: Path) -> float | None:
    if (v2 := _text(folder / "cpu.max")) is not None:
        quota, _, period = v2.partition(" ")
    else:
        quota = _text(folder / "cpu.cfs_quota_us") or ""
        period = _text(folder / "cpu.cfs_period_us") or ""
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return None  # "max", "-1", or no such file
    return int(quota) / int(period)


def _memory_limits(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, used) of each cgroup that limits the memory of this process.

    Pages that only cache files count as used there, but are given back on demand.
    """
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    for folder in _cgroups("memory", root):
        for limit_name, used_name in names:
            limit = _number(folder / limit_name)
            if limit is not None and limit < _UNLIMITED:
                used = _number(folder / used_name) or 0
                yield limit, max(0, used - _reclaimable(folder / "memory.stat"))


def _reclaimable(stat: Path) -> int:
    fields = dict(line.split(" ", 1) for line in (_text(stat) or "").splitlines() if " " in line)
    return sum(
        int(fields.get(f"total_{name}") or fields.get(name) or 0)
        for name in ("inactive_file", "active_file")
    )


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
