"""Gumbel noise that depends on nothing but where it is used.

The noise for a token at a position of a stream is a hash of (seed, stream, position, token). Two
branches that choose the same position's token, a draft and the main sequence, see the same noise,
and so tend to choose the same token; and what is chosen can't depend on batches, drafts or chance.
This is the shared-randomness coupling of Daliri, Musco and Suresh, "Coupling without Communication
and Drafter-Invariant Speculative Decoding" (2024), applied with the Gumbel-max trick.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

THINKING_STREAM, ANSWER_STREAM = 0, 1

MAX_GUMBEL = float(-np.log(-np.log1p(-(2.0**-54))))
"""No noise value exceeds this (about 37.4): the uniforms are multiples of 2^-53 plus 2^-54."""
MIN_GUMBEL = float(-np.log(-np.log(2.0**-54)))
"""No noise value lies below this (about -3.6)."""


def _mix(value: int) -> int:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014)."""
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def position_key(seed: int, stream: int, position: int) -> int:
    """The 64-bit key of one position in one stream."""
    key = _mix((seed + _GOLDEN) & _MASK)
    key = _mix((key + _GOLDEN * (stream + 1)) & _MASK)
    return _mix((key + _GOLDEN * (position + 1)) & _MASK)


def gumbel(key: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise, one value per token id, for the position that `key` stands for."""
    z = np.uint64(key) + (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX_2)
    z ^= z >> np.uint64(31)
    uniform = ((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise
