"""Comparing a request with speculation to the same request without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssr_local.engine import Engine
from ssr_local.generation import Completion
from ssr_local.request import Policy, Request
from support.bare_model import bare_model


@dataclass(frozen=True)
class Run:
    completion: Completion
    tokens: list[int]
    """Everything in the main sequence's memory at the end: prompt, thinking, close and answer."""


def run(engine: Engine, prompt: str, **fields: Any) -> Run:
    """Run a request on an engine that remembers nothing."""
    engine.forget()
    return run_on(engine, prompt, **fields)


def run_on(engine: Engine, prompt: str, **fields: Any) -> Run:
    """Run a request on an engine as it is."""
    completion = engine.generate(Request.of(prompt, **fields))
    # The decided tokens are no part of the public face; the engine has one slot in these tests.
    return Run(completion, list(engine._worker._free[0].tokens))


def assert_lossless(engine: Engine, prompt: str, policy: Policy, **fields: Any) -> Completion:
    """The same text and the same tokens as plain decoding; returns the speculated completion."""
    plain = run(engine, prompt, policy=Policy.PLAIN, **fields)
    speculated = run(engine, prompt, policy=policy, **fields)
    assert_same(plain, speculated)
    return speculated.completion


def assert_same(plain: Run, speculated: Run) -> None:
    assert speculated.completion.reasoning == plain.completion.reasoning
    assert speculated.completion.answer == plain.completion.answer
    assert speculated.completion.finish_reason == plain.completion.finish_reason
    assert speculated.completion.usage.completion_tokens == plain.completion.usage.completion_tokens
    # When the last token was accepted its KV is there already; after plain decoding it never is.
    shorter = min(len(plain.tokens), len(speculated.tokens))
    assert speculated.tokens[:shorter] == plain.tokens[:shorter]
    assert abs(len(speculated.tokens) - len(plain.tokens)) <= 1


def score_gap(path: Path, prefix: Sequence[int], chosen: int, other: int) -> float:
    """How far apart the logits of two tokens are after `prefix`, decoded alone in a fresh context.

    For runs that differ: within the backend's rounding between batch shapes, a difference is a tie
    that fell the other way; beyond it, it is a fault.
    """
    with bare_model(path, n_cells=len(prefix) + 8) as model:
        logits = model.read(prefix)
    return abs(float(logits[chosen] - logits[other]))


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Where two token sequences part; None when one is the beginning of the other."""
    for place, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return place
    return None
