"""What the installed build of llama.cpp can compute on: backends, devices, CPU features.

llama-cpp-python does not bind ggml's device registry, so its functions are bound here, from the
libraries that the build brings along. A build without them reports no devices rather than fail.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

from ssr_local.llama.library import lib


class DeviceKind(StrEnum):
    CPU = "cpu"
    GPU = "gpu"
    INTEGRATED = "integrated gpu"
    """Shares the machine's memory."""
    ACCELERATOR = "accelerator"
    """Works beside the CPU on its memory (BLAS, AMX)."""
    OTHER = "other"


_KINDS = (DeviceKind.CPU, DeviceKind.GPU, DeviceKind.INTEGRATED, DeviceKind.ACCELERATOR)
"""In the order of `enum ggml_backend_dev_type`."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One of ggml's backends in this build, such as CPU, CUDA or Metal."""

    name: str
    device_count: int


@dataclass(frozen=True, slots=True)
class Device:
    """Something that a backend computes on; memory in bytes, 0 where the backend doesn't say."""

    name: str
    description: str
    kind: DeviceKind
    memory_free: int
    memory_total: int

    @property
    def is_gpu(self) -> bool:
        return self.kind in (DeviceKind.GPU, DeviceKind.INTEGRATED)


def version() -> str:
    """The version of llama-cpp-python."""
    return package_version("llama-cpp-python")


def system_info() -> str:
    """llama.cpp's own line on the features it was built with and found in the CPU."""
    raw: bytes = lib.llama_print_system_info()
    return raw.decode("utf-8", "replace").strip(" |")


def cpu_features() -> list[str]:
    """The names in `system_info` that are on."""
    items = system_info().replace(":", "|").split("|")
    on = (item.split("=") for item in items if "=" in item)
    return [name.strip() for name, value in on if value.strip() == "1"]


def uses_amx() -> bool:
    """Whether this build, on this CPU, would compute rearranged weights with AMX tiles.

    That kills the process with a segmentation fault wherever the compiler took the tile
    configuration for unused memory (GCC 12, for one), or where the kernel wants each thread to ask
    for the tiles: llama.cpp issue 20824 and pull request 26954, open in December 2026.
    """
    return "AMX_INT8" in cpu_features()


def can_offload() -> bool:
    """Whether layers can be put on a GPU by this build, on this machine."""
    return bool(lib.llama_supports_gpu_offload())


def backends() -> list[Backend]:
    count = _function("ggml_backend_reg_count", ctypes.c_size_t)
    get = _function("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)
    name = _function("ggml_backend_reg_name", ctypes.c_char_p, ctypes.c_void_p)
    devices_of = _function("ggml_backend_reg_dev_count", ctypes.c_size_t, ctypes.c_void_p)
    if not (count and get and name and devices_of):
        return []
    registered = (get(index) for index in range(count()))
    return [Backend(_text(name(entry)), devices_of(entry)) for entry in registered]


def devices() -> list[Device]:
    count = _function("ggml_backend_dev_count", ctypes.c_size_t)
    get = _function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    if not (count and get):
        return []
    return [_device(get(index)) for index in range(count())]


def _device(pointer: int) -> Device:
    name = _function("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
    description = _function("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)
    kind = _function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)
    number = kind(pointer) if kind else -1
    free, total = _memory(pointer)
    return Device(
        name=_text(name(pointer)) if name else "?",
        description=_text(description(pointer)) if description else "",
        kind=_KINDS[number] if 0 <= number < len(_KINDS) else DeviceKind.OTHER,
        memory_free=free,
        memory_total=total,
    )


def _memory(pointer: int) -> tuple[int, int]:
    size_pointer = ctypes.POINTER(ctypes.c_size_t)
    ask = _function("ggml_backend_dev_memory", None, ctypes.c_void_p, size_pointer, size_pointer)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if ask:
        ask(pointer, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


@cache
def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A C function of ggml by its name, or None if no library of the build exports it."""
    for library in _libraries():
        try:
            prototype = ctypes.CFUNCTYPE(result, *arguments)
            return prototype((name, library))
        except AttributeError:
            continue
    return None


def _libraries() -> Iterator[ctypes.CDLL]:
    """libllama first: on Linux and macOS a symbol is also looked up in what it depends on. On
    Windows it isn't, so the libraries beside it follow."""
    yield lib._lib
    folder = Path(lib._lib._name).parent
    for stem in ("ggml-base", "ggml"):
        for found in sorted(folder.glob(f"*{stem}.*")):
            if found.suffix in (".so", ".dylib", ".dll"):
                yield ctypes.CDLL(str(found))
