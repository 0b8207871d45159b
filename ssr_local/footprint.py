"""How much memory a model needs, and whether a machine has it. Bytes throughout.

Figures come from the file's header; what llama.cpp allocates beside weights and KV cache is
estimated on the high side, for the question is "does it fit", and a wrong yes costs a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ssr_local.device import Machine
from ssr_local.gguf import GGUFHeader
from ssr_local.gguf_types import TensorInfo
from ssr_local.settings import KVType

KV_BYTES: dict[KVType, float] = {
    KVType.F32: 4.0,
    KVType.F16: 2.0,
    KVType.Q8_0: 34 / 32,
}
DEFAULT_CONTEXT = 16_384
"""Tokens that the engine gives a model unless told otherwise (see EngineSettings)."""
_OVERHEAD = 96 << 20
"""Vocabulary, graph and small buffers."""
_SAFETY = 0.92
"""Share of the free memory that is planned with: drivers and the desktop want some too."""


class Fit(StrEnum):
    GPU = "gpu"
    """All of it fits in the memory of the GPUs."""
    MEMORY = "memory"
    """It fits in the machine's memory, and runs on the CPU (in part, where there is a GPU)."""
    TOO_LARGE = "too large"


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    weights: int
    kv: int
    state: int
    """Recurrent layers' state (linear attention, short convolutions)."""
    compute: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.state + self.compute


def kv_bytes_per_token(header: GGUFHeader, kv_type: KVType = KVType.F16) -> int:
    """KV cache that one token takes in all layers.

    The width of a layer's keys and values is read off its projection tensors, so that models whose
    layers differ (hybrids, sliding windows with other head sizes) need no special case. Sliding
    windows are counted in full, as the engine keeps them in full (swa_full).
    """
    values = sum(_layer_kv_values(header, layer) for layer in _caching_layers(header))
    return round(values * KV_BYTES[kv_type])


def state_bytes(header: GGUFHeader) -> int:
    """Recurrent state of one sequence, in f32."""
    layers = len(_recurrent_layers(header))
    inner, state, groups, kernel = (
        _count(header, f"ssm.{name}")
        for name in ("inner_size", "state_size", "group_count", "conv_kernel")
    )
    short_conv = max(0, _count(header, "shortconv.l_cache") - 1) * header.embedding_length
    conv = max(0, kernel - 1) * (inner + 2 * groups * state)
    return 4 * layers * (inner * state + conv + short_conv)


def memory_needed(
    header: GGUFHeader,
    n_ctx: int,
    *,
    kv_type: KVType = KVType.F16,
    slots: int = 1,
    draft_cells: int | None = None,
    batch_rows: int = 512,
) -> MemoryNeed:
    """Memory for a model with `slots` requests of `n_ctx` tokens each.

    Args:
        draft_cells: KV cells for drafts per slot; None for what EngineSettings does.
        batch_rows: rows that llama.cpp computes at once.
    """
    drafts = min(2048, n_ctx // 4) if draft_cells is None else draft_cells
    return MemoryNeed(
        weights=header.file_size,
        kv=slots * (n_ctx + drafts) * kv_bytes_per_token(header, kv_type),
        state=3 * slots * state_bytes(header),  # main, draft, and the copy that is verified on
        compute=_compute_bytes(header, batch_rows),
    )


def roughly_needed(file_size: int) -> int:
    """The same from the file's size alone, for a model that isn't here yet."""
    return round(file_size * 1.12) + (600 << 20)


def fits(needed: int, machine: Machine, *, now: bool = True) -> Fit:
    """Where `needed` bytes find room: in memory that is free now, or (now=False) could be."""
    gpu = machine.gpu_memory_free if now else machine.gpu_memory_total
    ram = machine.memory.available if now else machine.memory.total
    if machine.gpus and needed <= gpu * _SAFETY:
        return Fit.GPU
    room = ram if machine.unified_memory else ram + gpu
    return Fit.MEMORY if needed <= room * _SAFETY else Fit.TOO_LARGE


def largest_context(header: GGUFHeader, machine: Machine, kv_type: KVType = KVType.F16) -> int:
    """The longest context, in steps of 256 up to what the model was trained for, that fits.

    0 when not even the weights do.
    """
    trained = header.context_length or DEFAULT_CONTEXT
    base = memory_needed(header, 0, kv_type=kv_type)
    if fits(base.total, machine) is Fit.TOO_LARGE:
        return 0
    where = fits(memory_needed(header, min(256, trained), kv_type=kv_type).total, machine)
    low, high = 0, trained // 256
    while low < high:
        middle = (low + high + 1) // 2
        here = fits(memory_needed(header, middle * 256, kv_type=kv_type).total, machine)
        low, high = (middle, high) if here is where else (low, middle - 1)
    return low * 256


def _caching_layers(header: GGUFHeader) -> Iterator[int]:
    """Layers with a KV cache of their own: not recurrent, and not sharing an earlier layer's."""
    recurrent = _recurrent_layers(header)
    last = header.block_count - _count(header, "attention.shared_kv_layers")
    present = {layer for tensor in header.tensors if (layer := _layer_of(tensor)) is not None}
    return (layer for layer in sorted(present) if layer < last and layer not in recurrent)


def _recurrent_layers(header: GGUFHeader) -> set[int]:
    names = {tensor.name for tensor in header.tensors}
    return {
        layer
        for tensor in header.tensors
        if (layer := _layer_of(tensor)) is not None
        and (".ssm_" in tensor.name or ".shortconv." in tensor.name)
        and f"blk.{layer}.attn_k.weight" not in names
    }


def _layer_kv_values(header: GGUFHeader, layer: int) -> int:
    """Values of a layer's key and value for one token."""
    widths = _projection_widths(header)
    keys, values = (widths.get(f"blk.{layer}.attn_{which}.weight") for which in "kv")
    if keys is not None:
        return keys + (values if values is not None else keys)  # Gemma 4: the value is the key
    heads = header.kv_head_counts
    count = heads[layer] if layer < len(heads) else 0
    return count * (header.key_length + header.value_length)


def _projection_widths(header: GGUFHeader) -> dict[str, int]:
    return {tensor.name: tensor.dims[-1] for tensor in header.tensors if len(tensor.dims) == 2}


def _layer_of(tensor: TensorInfo) -> int | None:
    prefix, _, rest = tensor.name.partition(".")
    number = rest.partition(".")[0]
    return int(number) if prefix == "blk" and number.isdecimal() else None


def _count(header: GGUFHeader, key: str) -> int:
    value = header.own(key)
    return value if isinstance(value, int) and 0 <= value < 2**32 else 0


def _compute_bytes(header: GGUFHeader, rows: int) -> int:
    """Buffers for a batch: its logits, and the widest few activations."""
    width = 6 * header.embedding_length + 3 * header.feed_forward_length
    return 4 * rows * (header.vocab_size + width) + _OVERHEAD
