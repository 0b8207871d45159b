"""The cursor that parses a GGUF header out of a file's first bytes, trusting none of them.

Private to `ssr_local.gguf`, which opens the file and decides how much of it to read. Rules as in
ggml's `gguf.cpp`; sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from ssr_local.gguf_types import ARRAY, SCALARS, STRING, TENSOR_TYPES, SkippedArray, TensorInfo

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_NAME: Final = 64
"""GGML_MAX_NAME, with its closing zero."""
MAX_DIMS: Final = 4
MAX_VALUES: Final = 2**63 - 1
SMALL_ARRAY: Final = 4096
"""Numeric arrays up to this length are kept (per-layer head counts); longer ones are skipped."""

_U32 = Struct("<I")
_U64 = Struct("<Q")
_MIN_ITEM: Final = {"metadata entries": 8 + 4 + 1, "tensors": 8 + 4 + 8 + 4 + 8}


class NeedMore(Exception):
    """The header goes on beyond the bytes read so far, and the file has more."""


@dataclass(frozen=True, slots=True)
class RawHeader:
    """A header whose every byte was checked; what it means is `GGUFHeader`'s matter."""

    version: int
    data_offset: int
    metadata: dict[str, Any]
    tensors: tuple[TensorInfo, ...]


class Reader:
    """Never reads past the file, and raises `fail(problem)` when the bytes make no sense.

    Args:
        data: the file's first bytes.
        size: the whole file's length.
        arrays: keys of long arrays to build.
        fail: makes the error of a problem told in a few words.
    """

    def __init__(
        self,
        data: bytes,
        size: int,
        arrays: Collection[str],
        fail: Callable[[str], Exception],
    ) -> None:
        self.fail = fail
        self.data = data
        self.size = size
        self.arrays = arrays
        self.at = 0

    def header(self) -> RawHeader:
        version, tensor_count, entry_count = self._preamble()
        metadata = self._metadata(entry_count)
        tensors = self._tensor_infos(tensor_count)
        alignment = self._alignment(metadata)
        data_offset = _padded(self.at, alignment)
        self._check_extents(tensors, data_offset, alignment)
        return RawHeader(version, data_offset, metadata, tensors)

    def take(self, size: int, what: str) -> int:
        """Move over `size` bytes and return where they start."""
        start = self.at
        end = start + size
        if end > self.size:
            raise self.fail(
                f"{what} at byte {start:,} needs {size:,} bytes, but the file ends at "
                f"{self.size:,} (a download that was cut off?)"
            )
        if end > len(self.data):
            raise NeedMore
        self.at = end
        return start

    def number(self, form: Struct, what: str) -> Any:
        return form.unpack_from(self.data, self.take(form.size, what))[0]

    def text(self, what: str) -> bytes:
        length = self.number(_U64, f"the length of {what}")
        start = self.take(length, what)
        return self.data[start : start + length]

    def _preamble(self) -> tuple[int, int, int]:
        start = self.take(4, "the magic number")
        if self.data[start : start + 4] != MAGIC:
            raise self.fail(f"it starts with {self.data[:4]!r} instead of {MAGIC!r}")
        version = self.number(_U32, "the format's version")
        if version not in VERSIONS:
            raise self.fail(f"its GGUF version is {version}, known are 2 and 3 (little-endian)")
        tensors = self._count("tensors")
        return version, tensors, self._count("metadata entries")

    def _count(self, what: str) -> int:
        count: int = self.number(_U64, f"the number of {what}")
        if count * _MIN_ITEM[what] > self.size:
            raise self.fail(f"it claims {count:,} {what}, more than {self.size:,} bytes can hold")
        return count

    def _metadata(self, count: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(count):
            key = self._decoded("a metadata key")
            if key in metadata:
                raise self.fail(f"the metadata key {key!r} occurs twice")
            metadata[key] = self._value(key, self.number(_U32, f"the type of {key}"))
        return metadata

    def _decoded(self, what: str) -> str:
        raw = self.text(what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not text: {raw[:20]!r}") from None

    def _value(self, key: str, kind: int) -> Any:
        if kind == STRING:
            return self.text(key).decode(errors="replace")
        if kind == ARRAY:
            return self._array(key)
        if kind not in SCALARS:
            raise self.fail(f"{key} has the unknown value type {kind}")
        return self.number(SCALARS[kind], key)

    def _array(self, key: str) -> Any:
        kind = self.number(_U32, f"the element type of {key}")
        length = self.number(_U64, f"the length of {key}")
        if kind == STRING:
            return self._strings(key, length)
        if kind not in SCALARS:
            raise self.fail(f"{key} is an array of the unknown type {kind}")
        form = SCALARS[kind]
        start = self.take(length * form.size, key)
        if length > SMALL_ARRAY and key not in self.arrays:
            return SkippedArray(length)
        end = start + length * form.size
        return [value for (value,) in form.iter_unpack(self.data[start:end])]

    def _strings(self, key: str, length: int) -> Any:
        if length * 8 > self.size - self.at:
            raise self.fail(f"{key} claims {length:,} texts, more than the file can hold")
        if key in self.arrays:
            return [self.text(key).decode(errors="replace") for _ in range(length)]
        self._skip_strings(key, length)
        return SkippedArray(length)

    def _skip_strings(self, key: str, length: int) -> None:
        """The hot loop: half a million texts in a large vocabulary, so no calls but one."""
        data, at, read = self.data, self.at, _U64.unpack_from
        last = len(data) - 8
        for _ in range(length):
            if at > last:
                break
            at += 8 + read(data, at)[0]
        else:
            self.take(at - self.at, key)
            return
        self.take(at + 8 - self.at, key)

    def _tensor_infos(self, count: int) -> tuple[TensorInfo, ...]:
        tensors: dict[str, TensorInfo] = {}
        for _ in range(count):
            tensor = self._tensor_info()
            if tensor.name in tensors:
                raise self.fail(f"the tensor {tensor.name!r} occurs twice")
            tensors[tensor.name] = tensor
        return tuple(tensors.values())

    def _tensor_info(self) -> TensorInfo:
        name = self._decoded("a tensor's name")
        if len(name.encode()) >= MAX_NAME:
            raise self.fail(f"a tensor's name is {len(name)} characters long: {name[:20]!r}...")
        n_dims = self.number(_U32, f"the dimensions of {name}")
        if n_dims > MAX_DIMS:
            raise self.fail(f"the tensor {name!r} has {n_dims} dimensions, at most 4 are possible")
        dims = tuple(self.number(_U64, f"the shape of {name}") for _ in range(n_dims))
        kind = self.number(_U32, f"the type of {name}")
        offset = self.number(_U64, f"the place of {name}")
        return self._checked_tensor(name, dims, kind, offset)

    def _checked_tensor(
        self, name: str, dims: tuple[int, ...], kind: int, offset: int
    ) -> TensorInfo:
        if kind not in TENSOR_TYPES:
            raise self.fail(
                f"the tensor {name!r} has the unknown type {kind} (if the file is newer than this "
                "version of llama-cpp-python, update that)"
            )
        tensor = TensorInfo(name, dims, TENSOR_TYPES[kind], offset)
        if any(dim < 1 for dim in dims) or tensor.values > MAX_VALUES:
            raise self.fail(f"the tensor {name!r} has the impossible shape {dims}")
        if (dims[0] if dims else 1) % tensor.type.block_values:
            raise self.fail(
                f"rows of {name!r} have {dims[0] if dims else 1} values, which {tensor.type.name} "
                f"can't store: its blocks have {tensor.type.block_values}"
            )
        return tensor

    def _alignment(self, metadata: Mapping[str, Any]) -> int:
        alignment = metadata.get("general.alignment", 32)
        sound = isinstance(alignment, int) and not isinstance(alignment, bool)
        if not sound or not 0 < alignment < 2**32 or alignment & (alignment - 1):
            raise self.fail(f"general.alignment is {alignment!r:.40}, not a power of two")
        return int(alignment)

    def _check_extents(
        self, tensors: tuple[TensorInfo, ...], data_offset: int, alignment: int
    ) -> None:
        """Tensors follow each other without gaps, each padded, and the last ends in the file."""
        expected = 0
        for tensor in tensors:
            if tensor.offset != expected:
                raise self.fail(
                    f"the tensor {tensor.name!r} is said to lie at {tensor.offset:,}, "
                    f"where {expected:,} follows from the ones before it"
                )
            expected += _padded(tensor.nbytes, alignment)
        needed = data_offset + tensors[-1].offset + tensors[-1].nbytes if tensors else 0
        if needed > self.size:
            raise self.fail(
                f"it is {self.size:,} bytes long, but its tensors need {needed:,}: "
                f"{needed - self.size:,} bytes are missing (a download that was cut off?)"
            )


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
