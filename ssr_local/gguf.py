"""Judges a GGUF file by its header, before llama.cpp sees it.

Why our own reader: llama.cpp answers a damaged file with a log line at best and an aborted process
at worst, and the `gguf` package builds every token of the vocabulary and trusts the counts that it
reads. This one takes hostile bytes: every count is checked against the bytes that are there before
anything is built, arrays are stepped over unless asked for, and whatever is wrong becomes a
`ModelCorrupt` that says what, and what to do. It reads the header only (tens of megabytes at most)
and checks that every tensor lies within the file; it does not judge the weights themselves, which
is what a sha256 is for.

Sizes are in bytes. The rules are those of ggml's `gguf.cpp`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from ssr_local.errors import ModelCorrupt, ModelNotFound
from ssr_local.gguf_reader import SMALL_ARRAY, NeedMore, RawHeader, Reader
from ssr_local.gguf_types import FILE_TYPES, SkippedArray, TensorInfo

FIRST_READ: Final = 16 << 20
"""Bytes read at first: enough for the header of most models, vocabulary included."""
MAX_HEADER: Final = 256 << 20
"""The largest header that is believed; real ones stay under 20 MB."""


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """What a sound GGUF file says of itself.

    A property whose value has the wrong type in the file raises ModelCorrupt; one that the file
    does not state is None (or 0 for counts that other figures are built from).
    """

    path: Path
    file_size: int
    version: int
    data_offset: int
    metadata: Mapping[str, Any] = field(repr=False)
    tensors: tuple[TensorInfo, ...] = field(repr=False)

    @property
    def architecture(self) -> str:
        found = self._text("general.architecture")
        if not found:
            raise _corrupt(self.path, "the header does not name an architecture")
        return found

    @property
    def name(self) -> str | None:
        return self._text("general.name")

    @property
    def context_length(self) -> int | None:
        return self._own_count("context_length")

    @property
    def block_count(self) -> int:
        return self._own_count("block_count") or 0

    @property
    def embedding_length(self) -> int:
        return self._own_count("embedding_length") or 0

    @property
    def feed_forward_length(self) -> int:
        per_layer = self._own_counts("feed_forward_length")
        return max(per_layer, default=0)

    @property
    def head_counts(self) -> tuple[int, ...]:
        """Query heads of each layer."""
        return self._own_counts("attention.head_count")

    @property
    def kv_head_counts(self) -> tuple[int, ...]:
        """Key and value heads of each layer; 0 where a layer has no attention."""
        return self._own_counts("attention.head_count_kv") or self.head_counts

    @property
    def key_length(self) -> int:
        """Values in one head's key."""
        return self._own_count("attention.key_length") or self._plain_head_length()

    @property
    def value_length(self) -> int:
        """Values in one head's value."""
        return self._own_count("attention.value_length") or self._plain_head_length()

    @property
    def chat_template(self) -> str | None:
        return self._text("tokenizer.chat_template")

    @property
    def tokenizer_model(self) -> str | None:
        return self._text("tokenizer.ggml.model")

    @property
    def vocab_size(self) -> int:
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, SkippedArray):
            return tokens.length
        return len(tokens) if isinstance(tokens, list) else self._own_count("vocab_size") or 0

    @property
    def quantization(self) -> str:
        """The file type as its name has it (Q4_K_M), else the type that most bytes have."""
        stated = FILE_TYPES.get(self._typed("general.file_type", int) or -1)
        return stated or self._main_tensor_type()

    @property
    def parameter_count(self) -> int:
        return sum(tensor.values for tensor in self.tensors)

    @property
    def split_count(self) -> int:
        return self._typed("split.count", int) or 1

    @property
    def split_index(self) -> int:
        return self._typed("split.no", int) or 0

    def own(self, key: str) -> Any:
        """The value of `<architecture>.<key>`, or None."""
        return self.metadata.get(f"{self.architecture}.{key}")

    def _typed(self, key: str, wanted: type) -> Any:
        value = self.metadata.get(key)
        if value is None or (isinstance(value, wanted) and not isinstance(value, bool)):
            return value
        raise _corrupt(self.path, f"{key} should be {wanted.__name__}, and is {value!r:.40}")

    def _text(self, key: str) -> str | None:
        value = self._typed(key, str)
        return value if value is None else str(value)

    def _own_count(self, key: str) -> int | None:
        value = self._typed(f"{self.architecture}.{key}", int)
        if value is not None and not 0 <= value < 2**32:
            raise _corrupt(self.path, f"{self.architecture}.{key} is {value}")
        return value if value is None else int(value)

    def _own_counts(self, key: str) -> tuple[int, ...]:
        """A figure that the file gives once for all layers, or layer by layer."""
        value = self.own(key)
        if not isinstance(value, list):
            return (self._own_count(key) or 0,) * min(self.block_count, SMALL_ARRAY)
        if any(not isinstance(item, int) or not 0 <= item < 2**32 for item in value):
            raise _corrupt(self.path, f"{self.architecture}.{key} holds an impossible count")
        return tuple(value)

    def _plain_head_length(self) -> int:
        heads = max(self.head_counts, default=0)
        return self.embedding_length // heads if heads else 0

    def _main_tensor_type(self) -> str:
        bytes_by_type: Counter[str] = Counter()
        for tensor in self.tensors:
            bytes_by_type[tensor.type.name] += tensor.nbytes
        return bytes_by_type.most_common(1)[0][0] if bytes_by_type else "none"


def read_header(path: Path, *, arrays: Collection[str] = ()) -> GGUFHeader:
    """Read and check a file's header; of a model in several parts, that of every part.

    Args:
        path: a `.gguf` file; of a split model, its first part.
        arrays: metadata keys of long arrays to build (for instance `tokenizer.ggml.tokens`).

    Raises:
        ModelNotFound: there is no such file.
        ModelCorrupt: the file is not GGUF, truncated, damaged, or a part is missing.
    """
    header = _read_file(path, arrays)
    if header.split_count > 1:
        _check_parts(header)
    return header


def is_model_file(header: GGUFHeader) -> bool:
    """Whether the file holds weights: vocabularies and projectors are GGUF files too."""
    return bool(header.tensors) and header.architecture != "clip"


def part_paths(header: GGUFHeader) -> list[Path]:
    """All files of a split model, in order, by llama.cpp's naming (`-00001-of-00003.gguf`)."""
    match = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", header.path.name)
    if header.split_count == 1:
        return [header.path]
    if match is None or int(match[3]) != header.split_count:
        raise _corrupt(
            header.path,
            f"it is one part of {header.split_count}, but its name does not end in "
            f"-00001-of-{header.split_count:05}.gguf",
        )
    names = (f"{match[1]}-{i:05}-of-{match[3]}.gguf" for i in range(1, header.split_count + 1))
    return [header.path.with_name(name) for name in names]


def _check_parts(header: GGUFHeader) -> None:
    parts = part_paths(header)
    if missing := [part.name for part in parts if not part.is_file()]:
        raise _corrupt(header.path, f"parts of it are missing: {', '.join(missing[:5])}")
    for part in parts:
        if part != header.path:
            _read_file(part, ())


def _read_file(path: Path, arrays: Collection[str]) -> GGUFHeader:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            raw = _parse(path, file, size, arrays)
    except FileNotFoundError as error:
        raise ModelNotFound(f"There is no file {path}.") from error
    except OSError as error:
        raise ModelCorrupt(f"{path} can't be read: {error}") from error
    header = GGUFHeader(path, size, raw.version, raw.data_offset, raw.metadata, raw.tensors)
    if header.split_index == 0:  # the other parts of a split model hold tensors only
        _ = header.architecture
    return header


def _parse(path: Path, file: BinaryIO, size: int, arrays: Collection[str]) -> RawHeader:
    data = file.read(FIRST_READ)
    while True:
        try:
            return Reader(data, size, arrays, lambda problem: _corrupt(path, problem)).header()
        except NeedMore:
            more = file.read(3 * len(data)) if len(data) < MAX_HEADER else b""
            if not more:
                raise _corrupt(path, f"its header goes on after {len(data):,} bytes") from None
            data += more


def _corrupt(path: Path, problem: str) -> ModelCorrupt:
    return ModelCorrupt(
        f"{path} is damaged or not a GGUF model: {problem}. Remove the file and fetch it again "
        "(`ssr models pull`), or check where it came from."
    )
