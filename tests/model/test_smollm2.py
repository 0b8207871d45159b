"""Lossless on real weights: SmolLM2-135M (Q4_1) in the exact recipe, token for token."""

from __future__ import annotations

import itertools

import pytest
from support.lossless import assert_lossless, assert_same, run_on

from ssr_local.engine import Engine
from ssr_local.request import Policy, Sampling

PROMPTS = (
    "Count from 1 to 20.",
    "Write a Python function that adds two numbers.",
    "What is the capital of France?",
    "List three fruits as a JSON array.",
    "Write a short poem about rain. 🌧",
    "Translate to Korean: good morning",
    "Repeat: one two three one two three one two three",
    "Make a markdown table of two planets.",
)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_two_hundred_cases_equal_plain_decoding(smollm2: Engine, prompt: str) -> None:
    """8 prompts x 5 temperatures x 5 seeds (the greedy ones differ by the budget). The prompt's KV
    is kept from case to case, which saves minutes."""
    accepted = 0
    smollm2.forget()
    for temperature, seed in itertools.product((0.0, 0.4, 0.7, 1.0, 1.4), range(5)):
        fields = {
            "sampling": Sampling(temperature=temperature, seed=seed, top_k=0, top_p=1),
            "thinking": "prompted",
            "thinking_budget": 6 + seed,
            "max_tokens": 18 + seed,
        }
        plain = run_on(smollm2, prompt, policy=Policy.PLAIN, **fields)
        speculated = run_on(smollm2, prompt, policy=Policy.SSR, **fields)
        assert_same(plain, speculated)
        stats = speculated.completion.stats
        accepted += stats.accepted_draft + stats.accepted_suffix
    assert accepted > 0


def test_longer_texts_with_refreshes_equal_plain_decoding(smollm2: Engine) -> None:
    for prompt, temperature in itertools.product(PROMPTS[:3], (0.0, 0.8)):
        done = assert_lossless(
            smollm2,
            prompt,
            Policy.SSR,
            sampling=Sampling(temperature=temperature, seed=1, top_k=0, top_p=1),
            thinking="prompted",
            thinking_budget=60,
            max_tokens=140,
        )
        assert len(done.stats.drafts) >= 1 or done.usage.reasoning_tokens < 5


def test_sampled_drafts_are_accepted_thanks_to_shared_noise(smollm2: Engine) -> None:
    """At temperature 1 independent noise would hardly ever agree."""
    steps = tokens = 0
    for seed in range(6):
        done = assert_lossless(
            smollm2,
            "Count from 1 to 20.",
            Policy.PREFIX,
            sampling=Sampling(temperature=0.6, seed=seed, top_k=0, top_p=1),
            thinking="prompted",
            thinking_budget=30,
            max_tokens=80,
        )
        steps += done.stats.answer_steps
        tokens += done.usage.answer_tokens
    assert tokens / steps > 1.05
