"""A llama.cpp context: decodes rows, edits sequences, can be interrupted.

Positions, lengths and sequence numbers are the caller's; this module checks that they can't bring
the process down (llama.cpp aborts on several out-of-range arguments) and turns return codes into
exceptions.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssr_local.errors import BackendError, EngineClosed, UnsupportedModel
from ssr_local.llama.batch import Batch, RowBlock
from ssr_local.llama.library import clear_log, lib, log_tail
from ssr_local.llama.model import LlamaModel
from ssr_local.settings import EngineSettings, KVType

Logits = NDArray[np.float32]

MAX_SEQUENCES = 256
_CPU_MICRO_BATCH_ROWS = 128
_CELL_PADDING = 256
_KV_TYPES = {
    KVType.F16: lib.GGML_TYPE_F16,
    KVType.F32: lib.GGML_TYPE_F32,
    KVType.Q8_0: lib.GGML_TYPE_Q8_0,
}


class DecodeInterrupted(Exception):
    """`interrupt` stopped a decode. Sequences may hold some of its rows: cut them back."""


class LlamaContext:
    """KV cache and compute buffers over a model.

    The cache is *unified*: all sequences share `n_cells` cells, and a copy of a sequence shares the
    cells of the original until one of the two goes on.

    Raises:
        UnsupportedModel: the context can't be created, most often for lack of memory.
    """

    def __init__(
        self,
        model: LlamaModel,
        settings: EngineSettings,
        *,
        n_cells: int,
        n_sequences: int,
        threads: int,
        max_logit_rows: int,
    ) -> None:
        assert 1 <= n_sequences <= MAX_SEQUENCES
        self.n_vocab = model.vocab.n_tokens
        self.n_sequences = n_sequences
        self.max_rows = settings.batch_rows
        self.max_logit_rows = max_logit_rows
        self._interrupt_flag, self._interrupt_callback = _interrupt_flag()
        params = self._params(settings, n_cells, threads)
        clear_log()
        self._pointer = lib.llama_init_from_model(model.pointer, params)
        if not self._pointer:
            raise UnsupportedModel(
                f"llama.cpp could not create a context of {n_cells} tokens ({log_tail()}). "
                "Try a smaller n_ctx."
            )
        self._model = model  # the weights must outlive the context
        self._memory = lib.llama_get_memory(self._pointer)
        self._batch = Batch(self.max_rows)

    def _params(self, settings: EngineSettings, n_cells: int, threads: int) -> Any:
        params = lib.llama_context_default_params()
        params.n_ctx = -(-n_cells // _CELL_PADDING) * _CELL_PADDING
        params.n_batch = settings.batch_rows
        params.n_ubatch = _micro_batch_rows(settings)
        params.n_seq_max = self.n_sequences
        params.n_outputs_max = self.max_logit_rows  # else the logits buffer is n_batch rows
        params.n_threads = threads
        params.n_threads_batch = settings.threads_batch or threads
        params.kv_unified = True
        params.swa_full = True  # without it a rollback past the window returns wrong logits
        params.flash_attn_type = (
            lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
            if settings.flash_attention
            else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        params.type_k = params.type_v = _KV_TYPES[settings.kv_type]
        params.abort_callback = self._interrupt_callback
        params.abort_callback_data = ctypes.cast(self._interrupt_flag, ctypes.c_void_p)
        return params

    @property
    def pointer(self) -> Any:
        if self._pointer is None:
            raise EngineClosed("The engine is closed.")
        return self._pointer

    def decode(self, blocks: Sequence[RowBlock]) -> list[Logits]:
        """Decode all rows in one call.

        Returns one array per block, of shape (block.n_logits, n_vocab): views of llama.cpp's own
        buffer, valid until the next decode.

        Raises:
            DecodeInterrupted: `interrupt` was called meanwhile.
            BackendError: llama.cpp failed, or no cells were left.
        """
        self._check(blocks)
        n_outputs = self._batch.fill(blocks)
        clear_log()
        code = lib.llama_decode(self.pointer, self._batch.c_batch)
        if code == 2:
            raise DecodeInterrupted
        if code != 0:
            reason = "no KV cells are left" if code == 1 else log_tail() or f"code {code}"
            raise BackendError(f"llama.cpp could not decode: {reason}")
        return self._split(blocks, n_outputs)

    def _check(self, blocks: Sequence[RowBlock]) -> None:
        rows = sum(len(block) for block in blocks)
        assert 0 < rows <= self.max_rows, rows
        assert sum(block.n_logits for block in blocks) <= self.max_logit_rows
        for block in blocks:
            assert 0 <= block.seq < self.n_sequences
            assert block.start >= 0
            assert 0 <= block.n_logits <= len(block)
            assert len(block) > 0
            assert min(block.tokens) >= 0
            assert max(block.tokens) < self.n_vocab

    def _split(self, blocks: Sequence[RowBlock], n_outputs: int) -> list[Logits]:
        if n_outputs == 0:
            return [np.empty((0, self.n_vocab), np.float32) for _ in blocks]
        raw = lib.llama_get_logits(self.pointer)
        rows = np.ctypeslib.as_array(raw, shape=(n_outputs, self.n_vocab))
        ends = np.cumsum([block.n_logits for block in blocks])
        return [rows[end - block.n_logits : end] for block, end in zip(blocks, ends, strict=True)]

    def copy_sequence(self, source: int, target: int, start: int, end: int) -> None:
        """Let `target` share the cells of `source` at positions start <= p < end."""
        self._check_sequences(source, target)
        lib.llama_memory_seq_cp(self._memory, source, target, start, end)

    def remove(self, seq: int, start: int = 0) -> bool:
        """Remove a sequence's positions from `start` on. False where the model's memory can't
        forget a part; nothing was changed then."""
        self._check_sequences(seq)
        return bool(lib.llama_memory_seq_rm(self._memory, seq, start, -1))

    def last_position(self, seq: int) -> int:
        """The highest position held for a sequence; -1 when it is empty."""
        self._check_sequences(seq)
        return int(lib.llama_memory_seq_pos_max(self._memory, seq))

    def clear(self) -> None:
        """Forget all sequences."""
        assert self._pointer is not None
        lib.llama_memory_clear(self._memory, True)

    def _check_sequences(self, *seqs: int) -> None:
        assert self._pointer is not None
        assert all(0 <= seq < self.n_sequences for seq in seqs), seqs

    def interrupt(self) -> None:
        """Stop the running decode, or else the next one, within milliseconds. For any thread.

        On GPU backends a running decode ends by itself first.
        """
        self._interrupt_flag[0] = b"x"

    def clear_interrupt(self) -> None:
        self._interrupt_flag[0] = b"\0"

    def close(self) -> None:
        """Free the context. Not while a decode runs."""
        if self._pointer is not None:
            lib.llama_free(self._pointer)
            self._pointer = None


def _interrupt_flag() -> tuple[Any, Any]:
    """A flag that llama.cpp can ask without Python.

    llama.cpp calls back some 500 times a step; from Python that costs 10 %. The C library's strlen
    has the right shape: a pointer in, zero out as long as the buffer starts with a zero byte.
    """
    libc = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
    address = ctypes.cast(libc.strlen, ctypes.c_void_p).value
    assert address is not None
    return ctypes.create_string_buffer(2), lib.ggml_abort_callback(address)


def _micro_batch_rows(settings: EngineSettings) -> int:
    """A decode can be interrupted only between two operations, so on a CPU none may be long."""
    on_gpu = lib.llama_supports_gpu_offload() and settings.n_gpu_layers != 0
    chosen = settings.micro_batch_rows or (settings.batch_rows if on_gpu else _CPU_MICRO_BATCH_ROWS)
    return min(chosen, settings.batch_rows)
