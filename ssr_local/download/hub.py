"""Downloads from the Hugging Face Hub that go on where they stopped.

`huggingface_hub.hf_hub_download` (2.x) starts again from nothing after an interruption, which
hurts with 20 GB; so this module asks the library for addresses, metadata, credentials and its
HTTP session, and streams the file itself, with range requests. HF_ENDPOINT, HF_HUB_OFFLINE and
HF_TOKEN work as the library documents them.
"""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import (
    HfApi,
    constants,
    get_hf_file_metadata,
    get_session,
    hf_hub_url,
    is_offline_mode,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

# Documented, but not marked as re-exports for type checkers.
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    hf_raise_for_status,
)

from ssr_local.download.progress import OnProgress, Progress, check_space
from ssr_local.errors import DownloadFailed
from ssr_local.registry import Entry, HubSource

BLOCK = 1 << 20
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""
TRIES = 5
"""Attempts in a row that may bring nothing before a download gives up."""

# The library is built on httpx or httpx2, depending on its version; this is HTTPError of either.
_HTTPError: type[Exception] = HfHubHTTPError.__bases__[0]


@dataclass(frozen=True, slots=True)
class _Remote:
    """A file of the hub as its metadata describes it; `sha256` where the hub tells."""

    url: str
    etag: str
    size: int
    sha256: str | None


def reachable(timeout: float = 2.0) -> bool:
    """A quick look whether the hub answers; False when the user asked to stay offline."""
    if is_offline_mode():
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=timeout, follow_redirects=False)
    except (_HTTPError, OSError):
        return False
    return True


def fetch(
    entry: Entry, source: HubSource, folder: Path, on_progress: OnProgress
) -> tuple[Path, str | None]:
    """Download into `folder`, or go on with what is there; the file, and its sha256 if told.

    Raises:
        DownloadFailed: with what the user can do about it. What came so far is kept.
    """
    with _explained(entry, source):
        remote = _find(entry, source)
        part = _part(folder, remote)
        check_space(folder, remote.size - _size(part), entry.name)
        _download(remote, part, lambda done: on_progress(Progress(done, remote.size, entry.name)))
    return part, remote.sha256


def _find(entry: Entry, source: HubSource) -> _Remote:
    try:
        return _metadata(source, entry.file)
    except EntryNotFoundError:
        if source.pattern is None:
            raise
        return _metadata(source, _matching_file(entry, source, source.pattern))


def _metadata(source: HubSource, file: str) -> _Remote:
    url = hf_hub_url(source.repo, file)
    found = get_hf_file_metadata(url, timeout=TIMEOUT, library_name="ssr-local")
    if found.size is None or found.etag is None:
        raise FileMetadataError(f"the hub does not tell the size of {file}")
    sha256 = found.etag if re.fullmatch(r"[0-9a-f]{64}", found.etag) else None
    return _Remote(url, found.etag, found.size, sha256)


def _matching_file(entry: Entry, source: HubSource, pattern: str) -> str:
    files = HfApi(library_name="ssr-local").list_repo_files(source.repo)
    names = [file for file in files if file.endswith(".gguf") and "mmproj" not in file.lower()]
    whole = [name for name in names if not re.search(r"-\d{5}-of-\d{5}\.gguf$", name)]
    matches = [name for name in whole if fnmatch.fnmatch(name, pattern)]
    if len(matches) != 1:
        raise DownloadFailed(
            f"{source.repo} should have one file for {entry.name}, called {entry.file} or like "
            f"{pattern}; it has {', '.join(matches or names) or 'no GGUF files'}. Download the one "
            "you want by hand and give its path, or add an entry to your own registry file."
        )
    return matches[0]


def _part(folder: Path, remote: _Remote) -> Path:
    """The unfinished file of just this content: one of an older version can't be gone on with."""
    part = folder / f"{re.sub(r'[^0-9A-Za-z]', '', remote.etag)[:64]}.part"
    for stale in folder.glob("*.part"):
        if stale != part or _size(stale) > remote.size:
            stale.unlink()
    return part


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _download(remote: _Remote, part: Path, on_bytes: Any) -> None:
    """Stream until the file is whole; a connection that breaks is taken up again."""
    tries = 0
    while (have := _size(part)) < remote.size:
        try:
            _stream(remote, part, have, on_bytes)
        except HfHubHTTPError:
            raise
        except (_HTTPError, ConnectionError):
            tries = 1 if _size(part) > have else tries + 1
            if tries >= TRIES:
                raise
            time.sleep(min(2**tries, 10) / 4)


def _stream(remote: _Remote, part: Path, have: int, on_bytes: Any) -> None:
    headers = build_hf_headers(library_name="ssr-local")
    headers |= {"Accept-Encoding": "identity", "Range": f"bytes={have}-"}
    with (
        get_session().stream(
            "GET", remote.url, headers=headers, timeout=TIMEOUT, follow_redirects=True
        ) as response,
        part.open("ab") as file,
    ):
        if response.is_error:
            response.read()
        hf_raise_for_status(response)
        if response.status_code != 206:  # the whole file, whatever was asked for
            file.truncate(0)
            have = 0
        _append(response.iter_bytes(BLOCK), file, have, remote.size, on_bytes)


def _append(blocks: Iterator[bytes], file: Any, have: int, size: int, on_bytes: Any) -> None:
    for block in blocks:
        have += len(block)
        if have > size:
            raise DownloadFailed(f"The hub sent more than the {size:,} bytes it announced.")
        file.write(block)
        on_bytes(have)


@contextmanager
def _explained(entry: Entry, source: HubSource) -> Iterator[None]:
    """Turns what can go wrong between here and the hub into advice."""
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise DownloadFailed(
            f"{entry.name} comes from the Hugging Face Hub, and HF_HUB_OFFLINE is set. Unset it, "
            "or give the path of a GGUF file that is here."
        ) from error
    except GatedRepoError as error:
        raise DownloadFailed(
            f"{source.repo} is gated: accept its terms at {constants.ENDPOINT}/{source.repo}, then "
            "`hf auth login` (or set HF_TOKEN) and pull again."
        ) from error
    except RepositoryNotFoundError as error:
        raise DownloadFailed(
            f"The hub has no repository {source.repo}, or it is private. {_own_file(entry)}"
        ) from error
    except EntryNotFoundError as error:
        raise DownloadFailed(
            f"{source.repo} has no file {entry.file} any more. {_own_file(entry)}"
        ) from error
    except (HfHubHTTPError, FileMetadataError) as error:
        raise DownloadFailed(
            f"The hub did not deliver {entry.name}: {_short(error)}. Try again later; what has "
            "arrived is kept."
        ) from error
    except (_HTTPError, ConnectionError) as error:
        raise DownloadFailed(
            f"The Hugging Face Hub ({constants.ENDPOINT}) can't be reached for {entry.name}: "
            f"{_short(error)}. Check the network and proxy settings; what has arrived is kept, "
            "and the next pull goes on from there."
        ) from error


def _own_file(entry: Entry) -> str:
    return (
        f"If you have the model elsewhere, give its path, or register it in your own models.toml "
        f"under the name {entry.name}."
    )


def _short(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__
