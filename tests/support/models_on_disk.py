"""Small GGUF files and registry entries for tests of the registry, downloads and the CLI."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from ssr_local.registry import Entry

ARCH = "llama"


def write_gguf(
    path: Path,
    *,
    arch: str = ARCH,
    tensors: Mapping[str, tuple[int, ...]] | None = None,
    numbers: Mapping[str, int] | None = None,
    arrays: Mapping[str, list[Any]] | None = None,
    tokens: int = 12,
    seed: int = 0,
    context: int | None = 512,
    kv_heads: int | None = 2,
) -> Path:
    """A sound file of about 2 KB. Shapes are in ggml's order, keys without the architecture."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("Test model")
    writer.add_chat_template("{{ messages }}")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"tok{i}" for i in range(tokens)])
    writer.add_token_scores([0.0] * tokens)
    shape: dict[str, int | None] = {"block_count": 2, "embedding_length": 16}
    shape |= {"context_length": context, "feed_forward_length": 32}
    shape |= {"attention.head_count": 4, "attention.head_count_kv": kv_heads}
    for key, number in (shape | dict(numbers or {})).items():
        if number is not None:
            writer.add_uint32(f"{arch}.{key}", number)
    for key, values in (arrays or {}).items():
        writer.add_array(key, values)
    random = np.random.default_rng(seed)
    for name, dims in (tensors or {"token_embd.weight": (16, 8), "output.weight": (8,)}).items():
        writer.add_tensor(name, random.standard_normal(dims[::-1]).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entry(name: str = "test-model", **changes: Any) -> Entry:
    """A registry entry; a hub source and an approximate size unless told otherwise."""
    fields: dict[str, Any] = {
        "name": name,
        "family": "test",
        "architecture": ARCH,
        "parameters": 0.001,
        "source": {"kind": "hf", "repo": "makers/test-model-GGUF"},
        "file": f"{name}.gguf",
        "size": 2_000,
        "license": "mit",
        "context": 512,
        "profile": "native",
    }
    return Entry.model_validate(fields | changes)


def entry_for(original: Path, name: str = "test-model", **changes: Any) -> Entry:
    """An entry whose size and sha256 are those of a file."""
    known = {"size": original.stat().st_size, "size_exact": True, "sha256": sha256_of(original)}
    return entry(name, **(known | changes))
