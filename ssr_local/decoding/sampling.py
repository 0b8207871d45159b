"""From one row of logits to one token.

Deterministic: the token depends on the logits, the position, the seed and the tokens generated
before it, and on nothing else. So a verified row gives the very token that plain decoding gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssr_local.decoding.noise import MAX_GUMBEL, MIN_GUMBEL, gumbel, position_key
from ssr_local.errors import BackendError

Row = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSettings:
    """`request.Sampling` with every default filled in."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int = 0

    @property
    def reads_history(self) -> bool:
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


class History:
    """Which tokens a branch has generated, and how often, for the penalties."""

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        self.prompt = frozenset(prompt)
        self.generated: Counter[int] = Counter()

    def add(self, token: int) -> None:
        self.generated[token] += 1

    def fork(self) -> History:
        twin = History()
        twin.prompt = self.prompt
        twin.generated = self.generated.copy()
        return twin


class Sampler:
    """Chooses tokens by Gumbel-max: argmax of (truncated, tempered) logits plus shared noise.

    The order of the steps is that of transformers and vLLM: bias and penalties, temperature, top-k,
    top-p, min-p.
    """

    def __init__(self, settings: SamplerSettings) -> None:
        self.settings = settings

    def sample(self, logits: Row, stream: int, position: int, history: History) -> int:
        """The token for `position` of `stream`.

        Args:
            logits: shape (n_vocab,); left unchanged.

        Raises:
            BackendError: the logits are not numbers.
        """
        logits = self._adjusted(logits, history)
        best = int(np.argmax(logits))
        if not np.isfinite(logits[best]):
            raise BackendError("the model's logits are not finite numbers")
        if self.settings.temperature == 0.0:
            return best
        tokens, scores = self._candidates(logits, best)
        noise = gumbel(position_key(self.settings.seed, stream, position), tokens)
        return int(tokens[np.argmax(scores + noise)])

    def _adjusted(self, logits: Row, history: History) -> Row:
        """Logit bias and penalties, on a copy if there are any."""
        settings = self.settings
        if not settings.logit_bias and not settings.reads_history:
            return logits
        logits = logits.copy()
        if settings.repetition_penalty != 1.0:
            seen = np.fromiter(history.prompt | history.generated.keys(), np.int64)
            penalty = settings.repetition_penalty
            values = logits[seen]
            logits[seen] = np.where(values > 0, values / penalty, values * penalty)
        if history.generated:
            tokens = np.fromiter(history.generated.keys(), np.int64)
            counts = np.fromiter(history.generated.values(), np.float64)
            logits[tokens] -= settings.presence_penalty + settings.frequency_penalty * counts
        for token, bias in settings.logit_bias.items():
            logits[token] += bias
        return logits

    def _candidates(self, logits: Row, best: int) -> tuple[NDArray[np.int64], Row]:
        """Token ids that are left after truncation, and their tempered logits."""
        settings = self.settings
        top = float(logits[best])
        total = None
        if 0 < settings.top_k < len(logits):
            floor = float(np.partition(logits, -settings.top_k)[-settings.top_k])
        elif settings.top_p < 1.0:
            total = float(np.exp((logits - top) / settings.temperature).sum(dtype=np.float64))
            floor = top + settings.temperature * _nucleus_floor(settings.top_p, len(logits))
        else:
            # No noise lifts a token over the best one from further below than this.
            floor = top - settings.temperature * (MAX_GUMBEL - MIN_GUMBEL)
        tokens = np.flatnonzero(logits >= floor)
        scores: Row = (logits[tokens].astype(np.float64) - top) / settings.temperature
        if settings.top_p < 1.0:
            tokens, scores = _nucleus(tokens, scores, settings.top_p, total)
        if settings.min_p > 0.0:
            kept = scores >= np.log(settings.min_p)
            tokens, scores = tokens[kept], scores[kept]
        return tokens, scores


def _nucleus_floor(top_p: float, n_vocab: int) -> float:
    """How far below the best one (in tempered logits) a token may lie and still be in the nucleus.

    Relative to the best token, all tokens below the floor weigh less than 1 - top_p together, so
    the nucleus is complete without them. It spares sorting the whole vocabulary.
    """
    return float(np.log((1.0 - top_p) / n_vocab))


def _nucleus(
    tokens: NDArray[np.int64], scores: Row, top_p: float, total: float | None
) -> tuple[NDArray[np.int64], Row]:
    """The smallest set of most likely tokens that weighs at least `top_p` (Holtzman et al. 2020).

    `total` is the weight of all tokens, where `tokens` is only a part of them.
    """
    order = np.argsort(-scores, kind="stable")
    weights = np.exp(scores[order])
    before = np.cumsum(weights) - weights
    kept = order[before < top_p * (weights.sum() if total is None else total)]
    return tokens[kept], scores[kept]
