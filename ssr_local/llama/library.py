"""Loads the llama.cpp library once, and keeps what it logs.

`lib` is the module of C functions. llama.cpp explains its failures only in its log, so the last
lines are kept for error messages; nothing is printed.
"""

from __future__ import annotations

import ctypes
import logging
from collections import deque

from llama_cpp import llama_cpp as lib

__all__ = ["lib", "log_tail"]

_logger = logging.getLogger("ssr_local.llama")
_lines: deque[str] = deque(maxlen=40)


def _on_log(level: int, text: bytes, _data: ctypes.c_void_p) -> None:
    line = text.decode("utf-8", "replace").rstrip()
    if line.strip(". "):
        _lines.append(line)
        _logger.debug(line)


# llama.cpp keeps only the address: without this reference the next log line would crash.
_callback = lib.llama_log_callback(_on_log)
lib.llama_log_set(_callback, ctypes.c_void_p())
lib.llama_backend_init()


def log_tail(lines: int = 3) -> str:
    """The last lines of llama.cpp's log, for an error message."""
    return "; ".join(list(_lines)[-lines:])


def clear_log() -> None:
    """Forget the kept lines, so that the next failure is explained by its own."""
    _lines.clear()
