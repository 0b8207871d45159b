"""What every source of downloads shares: telling progress, and room on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ssr_local.errors import DownloadFailed


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a download is; `total_bytes` is None while the source hasn't said."""

    done_bytes: int
    total_bytes: int | None
    what: str


OnProgress = Callable[[Progress], None]


def ignore(_progress: Progress) -> None:
    """For callers that don't care."""


def check_space(folder: Path, needed: int, name: str) -> None:
    """Raises DownloadFailed when the disk of `folder` has no room for `needed` more bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadFailed(
            f"{name} needs {needed / 1e9:.1f} GB on the disk of {folder}, and {free / 1e9:.1f} GB "
            "are free. Make room (`ssr models rm`), or set SSR_MODELS_DIR to a folder on another "
            "disk."
        )
