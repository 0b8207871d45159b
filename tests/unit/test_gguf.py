"""A sound GGUF file is read right and fast; every other one is refused with a reason."""

from __future__ import annotations

import ctypes
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.models_on_disk import write_gguf

from ssr_local import gguf as reader
from ssr_local.errors import ModelCorrupt, ModelNotFound
from ssr_local.footprint import largest_context, memory_needed
from ssr_local.gguf import GGUFHeader, is_model_file, read_header
from ssr_local.gguf_types import TENSOR_TYPES, SkippedArray

QUICK = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "sound.gguf").read_bytes()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def use_everything(header: GGUFHeader) -> None:
    """Read every property that the engine may read."""
    for name in dir(type(header)):
        if isinstance(getattr(type(header), name), property):
            getattr(header, name)
    is_model_file(header)
    memory_needed(header, 1024)


def with_u32(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct.pack("<I", value) + data[at + 4 :]


def with_u64(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct.pack("<Q", value) + data[at + 8 :]


def after(data: bytes, text: bytes) -> int:
    return data.index(text) + len(text)


def test_reads_what_was_written(file: Path) -> None:
    header = read_header(write_gguf(file))
    assert header.architecture == "llama"
    assert header.name == "Test model"
    assert header.chat_template == "{{ messages }}"
    assert header.tokenizer_model == "gpt2"
    assert (header.context_length, header.block_count, header.embedding_length) == (512, 2, 16)
    assert header.head_counts == (4, 4)
    assert header.kv_head_counts == (2, 2)
    assert (header.key_length, header.value_length) == (4, 4)
    assert header.vocab_size == 12
    assert header.parameter_count == 16 * 8 + 8
    assert header.quantization == "F32"
    assert header.file_size == file.stat().st_size
    assert [tensor.name for tensor in header.tensors] == ["token_embd.weight", "output.weight"]


def test_head_counts_may_differ_by_layer(file: Path) -> None:
    per_layer = {"lfm2.attention.head_count_kv": [0, 2]}
    header = read_header(write_gguf(file, arch="lfm2", numbers={}, arrays=per_layer, kv_heads=None))
    assert header.kv_head_counts == (0, 2)


def test_texts_of_a_vocabulary_are_stepped_over_unless_asked_for(file: Path) -> None:
    write_gguf(file)
    key = "tokenizer.ggml.tokens"
    assert read_header(file).metadata[key] == SkippedArray(12)
    assert read_header(file, arrays=[key]).metadata[key][:2] == ["tok0", "tok1"]


def test_a_header_longer_than_the_first_read_is_read_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_header(write_gguf(file))
    monkeypatch.setattr(reader, "FIRST_READ", 50)
    assert read_header(file) == whole


def test_a_header_that_never_ends_is_not_read_into_memory(
    file: Path, sound: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "FIRST_READ", 100)
    monkeypatch.setattr(reader, "MAX_HEADER", 200)
    file.write_bytes(sound)
    with pytest.raises(ModelCorrupt, match="header goes on"):
        read_header(file)


def test_every_truncation_is_noticed(file: Path, sound: bytes) -> None:
    for length in range(len(sound)):
        file.write_bytes(sound[:length])
        with pytest.raises(ModelCorrupt):
            read_header(file)


def test_missing_data_is_told_with_both_sizes(file: Path, sound: bytes) -> None:
    file.write_bytes(sound[:-100])
    with pytest.raises(ModelCorrupt) as caught:
        read_header(file)
    message = str(caught.value)
    assert f"{len(sound) - 100:,} bytes long" in message
    assert f"need {len(sound):,}" in message
    assert "100 bytes are missing" in message
    assert "ssr models pull" in message


@QUICK
@given(data=st.data())
def test_damaged_bytes_are_refused_or_harmless(
    data: st.DataObject, file: Path, sound: bytes
) -> None:
    """No other error, no hang and no huge allocation, whatever the bytes say."""
    damaged = bytearray(sound)
    places = st.integers(0, len(sound) - 1)
    for at in data.draw(st.lists(places, min_size=1, max_size=6)):
        damaged[at] = data.draw(st.integers(0, 255))
    file.write_bytes(damaged)
    with suppress(ModelCorrupt):
        use_everything(read_header(file))


@QUICK
@given(at=st.integers(0, 900), value=st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**62, 2**64 - 1]))
def test_hostile_numbers_are_refused_or_harmless(
    at: int, value: int, file: Path, sound: bytes
) -> None:
    file.write_bytes(with_u64(sound, at, value))
    with suppress(ModelCorrupt):
        use_everything(read_header(file))


class _InitParams(ctypes.Structure):
    """ggml's `struct gguf_init_params`."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def ggml_accepts(file: Path) -> bool:
    from ssr_local.llama.library import lib

    read, free = lib._lib.gguf_init_from_file, lib._lib.gguf_free
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.c_char_p, _InitParams]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    context = read(str(file).encode(), _InitParams(True, None))
    if context:
        free(context)
    return bool(context)


@QUICK
@given(data=st.data())
def test_what_is_accepted_is_accepted_by_ggml_too(
    data: st.DataObject, file: Path, sound: bytes
) -> None:
    """Ours may be stricter, never laxer: what passes must not fail, or worse, in llama.cpp."""
    damaged = bytearray(sound)
    for at in data.draw(st.lists(st.integers(0, len(sound) - 1), max_size=2)):
        damaged[at] = data.draw(st.integers(0, 255))
    file.write_bytes(damaged)
    try:
        read_header(file)
    except ModelCorrupt:
        return
    assert ggml_accepts(file)


DAMAGES = {
    "not gguf": (lambda d: b"PK\3\4" + d[4:], "starts with"),
    "an html error page": (lambda d: b"<!DOCTYPE html>" * 10, "starts with"),
    "empty": (lambda d: b"", "file ends at 0"),
    "version 1": (lambda d: with_u32(d, 4, 1), "version is 1"),
    "big-endian": (lambda d: with_u32(d, 4, 3 << 24), "version is 50331648"),
    "too many tensors": (lambda d: with_u64(d, 8, 10**9), "claims 1,000,000,000 tensors"),
    "too many entries": (lambda d: with_u64(d, 16, 2**60), "metadata entries"),
    "unknown value type": (
        lambda d: with_u32(d, after(d, b"general.name"), 77),
        "unknown value type 77",
    ),
    "endless token list": (
        lambda d: with_u64(d, after(d, b"tokenizer.ggml.tokens") + 8, 2**50),
        "more than the file can hold",
    ),
    "five dimensions": (
        lambda d: with_u32(d, after(d, b"token_embd.weight"), 5),
        "5 dimensions",
    ),
    "impossible shape": (
        lambda d: with_u64(d, after(d, b"token_embd.weight") + 4, 2**63),
        "impossible shape",
    ),
    "unknown tensor type": (
        lambda d: with_u32(d, after(d, b"token_embd.weight") + 20, 99),
        "unknown type 99",
    ),
    "rows that don't fill blocks": (
        lambda d: with_u32(d, after(d, b"token_embd.weight") + 20, 8),
        "blocks have 32",
    ),
    "overlapping tensors": (
        lambda d: with_u64(d, after(d, b"output.weight") + 16, 32),
        "where 512 follows",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_reason_is_told(name: str, file: Path, sound: bytes) -> None:
    damage, told = DAMAGES[name]
    file.write_bytes(damage(sound))
    with pytest.raises(ModelCorrupt, match=told):
        read_header(file)


def test_a_key_that_occurs_twice_is_refused(file: Path, sound: bytes) -> None:
    file.write_bytes(sound.replace(b"tokenizer.ggml.scores", b"tokenizer.ggml.tokens"))
    with pytest.raises(ModelCorrupt, match="occurs twice"):
        read_header(file)


def test_a_property_of_the_wrong_type_is_refused(file: Path) -> None:
    header = read_header(write_gguf(file, arrays={"tokenizer.ggml.pre": [1, 2]}))
    assert header.metadata["tokenizer.ggml.pre"] == [1, 2]
    write_gguf(file, arch="x", arrays={"x.context_length": [1, 2]}, context=None)
    with pytest.raises(ModelCorrupt, match=r"context_length should be int"):
        _ = read_header(file).context_length


def test_a_missing_file_is_not_called_corrupt(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        read_header(tmp_path / "nothing.gguf")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelCorrupt, match="can't be read"):
        read_header(tmp_path)


def write_part(path: Path, number: int, count: int) -> None:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.no", number)
    writer.add_uint16("split.count", count)
    writer.add_tensor(f"t{number}", np.zeros(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_all_parts_of_a_split_model_must_be_here(tmp_path: Path) -> None:
    parts = [tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    for number, part in enumerate(parts):
        write_part(part, number, 2)
    assert read_header(parts[0]).split_count == 2
    parts[1].write_bytes(parts[1].read_bytes()[:-8])
    with pytest.raises(ModelCorrupt, match="00002-of-00002"):
        read_header(parts[0])
    parts[1].unlink()
    with pytest.raises(ModelCorrupt, match=r"missing: m-00002-of-00002\.gguf"):
        read_header(parts[0])


def test_a_large_vocabulary_takes_under_300_ms(file: Path, sound: bytes) -> None:
    """151,936 tokens and as many merges, as Qwen has them."""
    texts = b"".join(struct.pack("<Q", 6) + b"abc%03d" % (i % 1000) for i in range(151_936))
    array = struct.pack("<IIQ", 9, 8, 151_936) + texts
    entries = b"".join(
        struct.pack("<Q", len(key)) + key + array for key in (b"extra.tokens", b"extra.merges")
    )
    count = struct.unpack_from("<Q", sound, 16)[0]
    tensors_at = sound.index(b"token_embd.weight") - 8
    head = with_u64(sound[:tensors_at], 16, count + 2) + entries
    file.write_bytes(head + sound[tensors_at:] + bytes(32))
    best = min(_seconds(file) for _ in range(3))
    assert best < 0.3
    assert read_header(file).metadata["extra.merges"] == SkippedArray(151_936)


def _seconds(file: Path) -> float:
    begin = time.perf_counter()
    read_header(file)
    return time.perf_counter() - begin


def test_the_block_sizes_are_those_of_the_installed_library() -> None:
    from ssr_local.llama.library import lib

    size, block = lib._lib.ggml_type_size, lib._lib.ggml_blck_size
    size.restype, block.restype = ctypes.c_size_t, ctypes.c_int64
    for number, kind in TENSOR_TYPES.items():
        assert (kind.block_values, kind.block_bytes) == (block(number), size(number)), kind.name


def test_largest_context_is_zero_when_the_weights_alone_do_not_fit(file: Path) -> None:
    from ssr_local.device import Machine, Memory

    header = read_header(write_gguf(file))
    assert largest_context(header, Machine(1, Memory(1000, 1000), ())) == 0
    assert largest_context(header, Machine(1, Memory(1 << 34, 1 << 34), ())) == 512
