"""Rows for one decode, laid out in numpy arrays that llama.cpp reads in place.

Filling ctypes arrays element by element takes eight times as long.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ssr_local.llama.library import lib


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Consecutive tokens to append to one sequence; the last `n_logits` of them want logits."""

    seq: int
    start: int
    """Position of the first token: the sequence's length before the decode."""
    tokens: Sequence[int]
    n_logits: int

    def __len__(self) -> int:
        return len(self.tokens)


class Batch:
    """A reusable llama.cpp batch of up to `capacity` rows."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._seqs = np.zeros(capacity, np.int32)
        self._wants_logits = np.zeros(capacity, np.int8)
        # Each row belongs to one sequence, so each row's list of sequences is one cell of _seqs.
        self._seq_counts = np.ones(capacity, np.int32)
        cells = np.arange(capacity, dtype=np.uintp) * self._seqs.itemsize
        self._seq_lists = cells + np.uintp(self._seqs.ctypes.data)
        self.c_batch = lib.llama_batch(
            n_tokens=0,
            token=_pointer(self._tokens, lib.llama_token),
            embd=None,
            pos=_pointer(self._positions, lib.llama_pos),
            n_seq_id=_pointer(self._seq_counts, ctypes.c_int32),
            seq_id=_pointer(self._seq_lists, ctypes.POINTER(lib.llama_seq_id)),
            logits=_pointer(self._wants_logits, ctypes.c_int8),
        )

    def fill(self, blocks: Sequence[RowBlock]) -> int:
        """Lay out the blocks one after the other; returns the number of rows with logits."""
        row = 0
        for block in blocks:
            end = row + len(block)
            self._tokens[row:end] = block.tokens
            self._positions[row:end] = np.arange(block.start, block.start + len(block))
            self._seqs[row:end] = block.seq
            self._wants_logits[row : end - block.n_logits] = 0
            self._wants_logits[end - block.n_logits : end] = 1
            row = end
        self.c_batch.n_tokens = row
        return sum(block.n_logits for block in blocks)


def _pointer(array: np.ndarray[Any, Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
