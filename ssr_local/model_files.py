"""Whether a model's file is here, whole, and what it should be.

A file counts as present only if its header is sound (`ssr_local.gguf`), its size is right, and its
sha256 is right where the registry knows it. The sha256 of gigabytes is computed once: a note in
`.verified/` beside the models keeps it, with the file's size and time, and counts as long as both
are unchanged. Files land here whole or not at all: downloads work in `.partial/`, and `install` is
the only way out of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from ssr_local.errors import ModelCorrupt, ModelNotFound
from ssr_local.gguf import GGUFHeader, is_model_file, part_paths, read_header
from ssr_local.registry import Entry, PathSource, models_dir

BLOCK = 4 << 20
OnBytes = Callable[[int], None]


class Status(StrEnum):
    PRESENT = "present"
    PARTIAL = "partial"
    """Not present, but an interrupted download can go on."""
    DAMAGED = "damaged"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class FileState:
    """`size` is what is on disk, in bytes; `verified` tells that the whole file was read and its
    sha256 noted, and that it is unchanged since."""

    status: Status
    size: int = 0
    verified: bool = False
    problem: str | None = None

    @property
    def present(self) -> bool:
        return self.status is Status.PRESENT


@dataclass(frozen=True, slots=True)
class _Note:
    """What was found when a file was last read in full."""

    path: str
    size: int
    mtime_ns: int
    sha256: str


def file_state(entry: Entry) -> FileState:
    """Look at an entry's file; reads it in full only if that was not done before."""
    path = entry.path
    if not path.is_file():
        begun = sum(part.stat().st_size for part in partial_files(entry))
        return FileState(Status.PARTIAL if begun else Status.ABSENT, begun)
    size = path.stat().st_size
    try:
        header = check_file(entry, path)
    except (ModelCorrupt, ModelNotFound) as error:
        return FileState(Status.DAMAGED, size, problem=str(error))
    verified = _noted_sha256(entry, path) is not None
    return FileState(Status.PRESENT, total_size(header), verified)


def checked_path(entry: Entry) -> Path:
    """The path of an entry's file, if it is present.

    Raises:
        ModelNotFound: it is not here; the message says how to get it.
        ModelCorrupt: it is here, and wrong.
    """
    path = entry.path
    if not path.is_file():
        raise ModelNotFound(_absent(entry))
    check_file(entry, path)
    return path


def check_header(path: Path) -> GGUFHeader:
    """The header of a model's file, of whatever origin.

    Raises:
        ModelNotFound: no such file.
        ModelCorrupt: not a sound GGUF file, or one without a model's weights.
    """
    header = read_header(path)
    if not is_model_file(header):
        raise ModelCorrupt(
            f"{path} is a sound GGUF file, but holds no language model (a vocabulary or an image "
            "projector, perhaps). Give the file with the model's weights."
        )
    return header


def check_file(entry: Entry, path: Path, on_bytes: OnBytes | None = None) -> GGUFHeader:
    """Check a file against an entry: header, size, sha256 (from the note, if that still holds).

    Raises:
        ModelCorrupt: what is wrong, expected against found, and what to do.
    """
    header = check_header(path)
    _check_size(entry, path, path.stat().st_size)
    if entry.sha256 is not None:
        found = _noted_sha256(entry, path) or _hash_and_note(entry, path, on_bytes)
        if found != entry.sha256:
            raise ModelCorrupt(
                f"{path} is not the file that {entry.name} should be: its sha256 is {found}, "
                f"expected {entry.sha256}. {_repair(entry)}"
            )
    return header


def verify(entry: Entry, on_bytes: OnBytes | None = None) -> str:
    """Read a present file in full, whatever was noted before; the sha256 found.

    Where the registry knows no sha256, the one seen at the download counts, if there was one.

    Raises:
        ModelNotFound, ModelCorrupt: as `checked_path`.
    """
    path = entry.path
    if not path.is_file():
        raise ModelNotFound(_absent(entry))
    expected = entry.sha256 or _known_sha256(entry)
    _note_path(entry).unlink(missing_ok=True)
    check_file(entry, path, on_bytes)
    found = _noted_sha256(entry, path) or _hash_and_note(entry, path, on_bytes)
    if expected is not None and found != expected:
        _note_path(entry).unlink(missing_ok=True)
        raise ModelCorrupt(
            f"{path} has changed: its sha256 is {found}, and was {expected}. {_repair(entry)}"
        )
    return found


def install(entry: Entry, finished: Path, sha256: str | None) -> Path:
    """Check a finished download and move it into its place, in one step.

    Args:
        finished: the file in `.partial/`.
        sha256: what its source says the sha256 is, where the registry doesn't know.

    Raises:
        ModelCorrupt: it is not what it should be; it was deleted, for going on with it is useless.
    """
    expected = entry.sha256 or sha256
    try:
        check_header(finished)
        _check_size(entry, finished, finished.stat().st_size)
        found = hash_file(finished)
        if expected is not None and found != expected:
            raise ModelCorrupt(
                f"What was downloaded for {entry.name} is not what was announced: its sha256 is "
                f"{found}, expected {expected}. Nothing was kept; try again."
            )
    except ModelCorrupt:
        finished.unlink(missing_ok=True)
        raise
    entry.path.parent.mkdir(parents=True, exist_ok=True)
    finished.replace(entry.path)
    _write_note(entry, entry.path, found)
    return entry.path


def remove(entry: Entry) -> int:
    """Delete an entry's file, parts and unfinished downloads; the bytes freed.

    A file that the registry only points to (`path`) is the user's and stays.
    """
    doomed = partial_files(entry)
    if not isinstance(entry.source, PathSource) and entry.path.is_file():
        doomed += _all_parts(entry.path)
    freed = sum(path.stat().st_size for path in doomed)
    for path in doomed:
        path.unlink(missing_ok=True)
    _note_path(entry).unlink(missing_ok=True)
    return freed


def partial_dir(entry: Entry) -> Path:
    """Where the downloads of an entry are worked on; on the same disk as where they go."""
    return models_dir() / ".partial" / entry.name


def partial_files(entry: Entry) -> list[Path]:
    return sorted(partial_dir(entry).glob("*.part"))


def total_size(header: GGUFHeader) -> int:
    """Bytes of all parts of a model."""
    return sum(part.stat().st_size for part in part_paths(header))


def hash_file(path: Path, on_bytes: OnBytes | None = None) -> str:
    """The sha256 of a file; `on_bytes` gets the number of bytes read so far."""
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            done += len(block)
            if on_bytes is not None:
                on_bytes(done)
    return digest.hexdigest()


def _absent(entry: Entry) -> str:
    if isinstance(entry.source, PathSource):
        return f"{entry.name} is registered as {entry.path}, and there is no such file."
    begun = "only partly downloaded" if partial_files(entry) else "not on this machine yet"
    return f"{entry.name} is {begun}. Fetch it with: ssr models pull {entry.name}"


def _repair(entry: Entry) -> str:
    if isinstance(entry.source, PathSource):
        return "Correct the registry file, or the file it points to."
    return f"Fetch it again with: ssr models pull --force {entry.name}"


def _check_size(entry: Entry, path: Path, size: int) -> None:
    if entry.size_exact and size != entry.size:
        raise ModelCorrupt(
            f"{path} is {size:,} bytes long, and {entry.name} should have {entry.size:,}. "
            f"{_repair(entry)}"
        )


def _all_parts(path: Path) -> list[Path]:
    try:
        return [part for part in part_paths(read_header(path)) if part.is_file()]
    except ModelCorrupt:
        return [path]


def _note_path(entry: Entry) -> Path:
    return models_dir() / ".verified" / f"{entry.name}.json"


def _read_note(entry: Entry) -> _Note | None:
    try:
        return _Note(**json.loads(_note_path(entry).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None  # no note, or one of another version: it is made anew


def _noted_sha256(entry: Entry, path: Path) -> str | None:
    note = _read_note(entry)
    if note is None:
        return None
    stat = path.stat()
    same = (str(path), stat.st_size, stat.st_mtime_ns) == (note.path, note.size, note.mtime_ns)
    return note.sha256 if same else None


def _known_sha256(entry: Entry) -> str | None:
    note = _read_note(entry)
    return note.sha256 if note else None


def _hash_and_note(entry: Entry, path: Path, on_bytes: OnBytes | None) -> str:
    found = hash_file(path, on_bytes)
    _write_note(entry, path, found)
    return found


def _write_note(entry: Entry, path: Path, sha256: str) -> None:
    stat = path.stat()
    note = _Note(str(path), stat.st_size, stat.st_mtime_ns, sha256)
    target = _note_path(entry)
    with suppress(OSError):  # a read-only folder costs time at the next start, no more
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_suffix(f".{os.getpid()}.tmp")
        scratch.write_text(json.dumps(asdict(note)), encoding="utf-8")
        scratch.replace(target)
