"""The sampler draws from the model's own distribution, by noise that depends only on the place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssr_local.decoding.noise import (
    ANSWER_STREAM,
    MAX_GUMBEL,
    MIN_GUMBEL,
    THINKING_STREAM,
    gumbel,
    position_key,
)
from ssr_local.decoding.sampling import History, Sampler, SamplerSettings
from ssr_local.errors import BackendError

LOGITS = np.array([2.0, 1.5, 1.0, 0.0, -0.5, -1.0, -3.0, 1.4], np.float32)
DRAWS = 20_000

# 99.9 % quantiles of the chi-square distribution, by degrees of freedom.
CHI_SQUARE = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 6: 22.46, 7: 24.32}


def draws(settings: SamplerSettings, logits: np.ndarray = LOGITS) -> np.ndarray:
    sampler, history = Sampler(settings), History()
    tokens = [sampler.sample(logits, ANSWER_STREAM, i, history) for i in range(DRAWS)]
    return np.bincount(tokens, minlength=len(logits))


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    weights = np.exp((logits - logits.max()) / temperature)
    return weights / weights.sum()


def assert_follows(counts: np.ndarray, expected: np.ndarray) -> None:
    assert counts[expected == 0].sum() == 0
    live = expected > 0
    wanted = expected[live] * DRAWS
    statistic = ((counts[live] - wanted) ** 2 / wanted).sum()
    assert statistic < CHI_SQUARE[live.sum() - 1]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_frequencies_follow_the_tempered_softmax(temperature: float) -> None:
    counts = draws(SamplerSettings(temperature=temperature, seed=11))
    assert_follows(counts, softmax(LOGITS, temperature))


def test_top_k_keeps_the_most_likely_and_renormalises() -> None:
    expected = softmax(LOGITS)
    expected[np.argsort(expected)[:-3]] = 0
    counts = draws(SamplerSettings(temperature=1.0, top_k=3, seed=5))
    assert_follows(counts, expected / expected.sum())


def test_top_p_keeps_the_smallest_set_that_weighs_enough() -> None:
    # Softmax of LOGITS: 0.34, 0.21, 0.13, ... and 0.19 for the last: 0.7 takes three.
    expected = np.where(np.isin(np.arange(8), [0, 1, 7]), softmax(LOGITS), 0)
    counts = draws(SamplerSettings(temperature=1.0, top_p=0.7, seed=6))
    assert_follows(counts, expected / expected.sum())


def test_top_p_over_a_large_vocabulary_cuts_where_a_full_sort_cuts() -> None:
    logits = np.random.default_rng(0).normal(0, 3, 50_000).astype(np.float32)
    weights = np.sort(softmax(logits.astype(np.float64)))[::-1]
    nucleus = int((np.cumsum(weights) - weights < 0.9).sum())
    tokens, _ = Sampler(SamplerSettings(temperature=1.0, top_p=0.9))._candidates(
        logits, int(logits.argmax())
    )
    assert len(tokens) == nucleus


def test_min_p_drops_what_is_unlikely_beside_the_best() -> None:
    expected = softmax(LOGITS)
    expected[expected < 0.5 * expected.max()] = 0
    counts = draws(SamplerSettings(temperature=1.0, min_p=0.5, seed=7))
    assert_follows(counts, expected / expected.sum())


def test_truncation_without_limits_drops_only_tokens_that_no_noise_could_lift() -> None:
    logits = np.array([0.0, -20.0, -(MAX_GUMBEL - MIN_GUMBEL) - 1e-3], np.float32)
    tokens, _ = Sampler(SamplerSettings(temperature=1.0))._candidates(logits, 0)
    assert tokens.tolist() == [0, 1]


def test_temperature_zero_is_argmax() -> None:
    assert draws(SamplerSettings())[0] == DRAWS


@given(seed=st.integers(0, 2**64 - 1), position=st.integers(0, 10**6))
def test_the_same_place_gives_the_same_token(seed: int, position: int) -> None:
    one, two = (Sampler(SamplerSettings(temperature=1.0, seed=seed)) for _ in range(2))
    args = (LOGITS, ANSWER_STREAM, position, History())
    assert one.sample(*args) == two.sample(*args)


def test_seeds_positions_and_streams_give_independent_noise() -> None:
    tokens = np.arange(1000)
    keys = [
        position_key(1, ANSWER_STREAM, 0),
        position_key(2, ANSWER_STREAM, 0),
        position_key(1, ANSWER_STREAM, 1),
        position_key(1, THINKING_STREAM, 0),
    ]
    noise = np.stack([gumbel(key, tokens) for key in keys])
    correlation = np.corrcoef(noise) - np.eye(len(keys))
    assert np.abs(correlation).max() < 0.12  # four standard errors of 1/sqrt(1000)


def test_noise_has_gumbel_mean_and_variance() -> None:
    noise = gumbel(position_key(3, 0, 0), np.arange(200_000))
    assert noise.mean() == pytest.approx(np.euler_gamma, abs=0.015)
    assert noise.var() == pytest.approx(np.pi**2 / 6, rel=0.02)
    assert noise.min() >= MIN_GUMBEL
    assert noise.max() <= MAX_GUMBEL


def test_nearby_distributions_mostly_agree_under_shared_noise() -> None:
    """What makes drafts worth anything at temperature 1: independent draws would agree in a
    quarter of the cases."""
    sampler, history = Sampler(SamplerSettings(temperature=1.0, seed=9)), History()
    shifted = LOGITS + np.random.default_rng(1).normal(0, 0.2, len(LOGITS)).astype(np.float32)
    agree = sum(
        sampler.sample(LOGITS, ANSWER_STREAM, i, history)
        == sampler.sample(shifted, ANSWER_STREAM, i, history)
        for i in range(1000)
    )
    assert agree > 800


def history_of(*tokens: int, prompt: tuple[int, ...] = ()) -> History:
    history = History(prompt)
    for token in tokens:
        history.add(token)
    return history


def test_presence_penalty_counts_once_and_frequency_penalty_each_time() -> None:
    presence = Sampler(SamplerSettings(presence_penalty=0.6))
    frequency = Sampler(SamplerSettings(frequency_penalty=0.4))
    # 2.0 against 1.5: 0.6 once flips it; 0.4 flips it only the second time.
    assert presence.sample(LOGITS, 0, 0, history_of(0)) == 1
    assert frequency.sample(LOGITS, 0, 0, history_of(0)) == 0
    assert frequency.sample(LOGITS, 0, 0, history_of(0, 0)) == 1


def test_repetition_penalty_counts_the_prompt_and_the_others_do_not() -> None:
    seen = history_of(prompt=(0,))
    repetition = Sampler(SamplerSettings(repetition_penalty=1.5))
    presence = Sampler(SamplerSettings(presence_penalty=2.0))
    assert repetition.sample(LOGITS, 0, 0, seen) == 1
    assert presence.sample(LOGITS, 0, 0, seen) == 0


def test_repetition_penalty_makes_negative_logits_more_negative() -> None:
    logits = np.array([-1.0, -1.2], np.float32)
    sampler = Sampler(SamplerSettings(repetition_penalty=1.5))
    assert sampler.sample(logits, 0, 0, history_of(0)) == 1


def test_logit_bias_can_force_and_ban() -> None:
    assert Sampler(SamplerSettings(logit_bias={6: 100.0})).sample(LOGITS, 0, 0, History()) == 6
    assert Sampler(SamplerSettings(logit_bias={0: -100.0})).sample(LOGITS, 0, 0, History()) == 1


def test_sampling_leaves_the_logits_alone() -> None:
    before = LOGITS.copy()
    settings = SamplerSettings(temperature=1.0, presence_penalty=1.0, logit_bias={1: 5.0})
    Sampler(settings).sample(LOGITS, 0, 0, history_of(0))
    np.testing.assert_array_equal(LOGITS, before)


def test_a_forked_history_goes_its_own_way() -> None:
    history = history_of(1)
    twin = history.fork()
    twin.add(2)
    assert 2 not in history.generated
    assert twin.generated[1] == 1


def test_logits_that_are_no_numbers_are_an_error() -> None:
    with pytest.raises(BackendError):
        Sampler(SamplerSettings()).sample(np.full(8, np.nan, np.float32), 0, 0, History())
