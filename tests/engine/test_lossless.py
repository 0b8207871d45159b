"""Speculation never changes the text: every token equals plain decoding's, greedy and sampled.

On tiny random models of three architectures in the exact recipe, so equality is demanded without
tolerance. The models' characters cover drafts that are always right, mostly right and mostly wrong.
"""

from __future__ import annotations

import itertools
import random

import pytest
from support.lossless import assert_lossless, assert_same, run, run_on
from support.tiny_gguf import NEVER, PREOPENED_TEMPLATE, Character, tiny_model

from ssr_local.engine import Engine
from ssr_local.request import Policy, Sampling
from ssr_local.settings import EngineSettings

ARCHS = ("llama", "qwen2", "qwen3")
EXACT = EngineSettings.exact(n_ctx=1024, draft_cells=1024)
PROMPTS = ("the first", "an other one", "0123456789 0123456789", "What?", "a b a b a b a b")
TEMPERATURES = (0.0, 0.3, 0.7, 1.0, 1.5)
LIMITS = {"thinking_budget": 40, "max_tokens": 120}


ENDLESS = Character(end_bias=NEVER)


@pytest.fixture(params=ARCHS)
def endless(request, engines) -> Engine:
    """A model that goes on until it is stopped."""
    path = tiny_model(request.param, chat_template=PREOPENED_TEMPLATE, character=ENDLESS)
    return engines.get(path, EXACT)


@pytest.fixture(params=ARCHS)
def engine(request, engines) -> Engine:
    return engines.get(tiny_model(request.param, chat_template=PREOPENED_TEMPLATE), EXACT)


CASES = list(itertools.product(PROMPTS, TEMPERATURES, range(3)))


@pytest.mark.parametrize("policy", [Policy.SSR, Policy.PREFIX, Policy.LOOKUP])
def test_text_equals_plain_decoding(engine: Engine, policy: Policy) -> None:
    """75 cases (prompt, temperature, seed) for each architecture and policy: 675 in all."""
    accepted = drafts = 0
    for prompt, temperature, seed in CASES:
        sampling = Sampling(temperature=temperature, seed=seed, top_k=0, top_p=1, min_p=0)
        done = assert_lossless(engine, prompt, policy, sampling=sampling, **LIMITS)
        accepted += done.stats.accepted_draft + done.stats.accepted_suffix
        drafts += len(done.stats.drafts)
    assert accepted > 0, "nothing was ever accepted: the comparison shows nothing"
    assert (drafts > 0) == (policy is not Policy.LOOKUP)


@pytest.mark.parametrize("context", [0.0, 0.2, 1.0])
def test_drafts_of_any_quality(engines, context: float) -> None:
    """A Markov chain makes every draft right, a strong context makes most of them wrong."""
    character = Character(context=context)
    path = tiny_model("llama", 3, chat_template=PREOPENED_TEMPLATE, character=character)
    engine = engines.get(path, EXACT)
    for temperature, seed in itertools.product((0.0, 0.8), range(4)):
        sampling = Sampling(temperature=temperature, seed=seed, top_k=0, top_p=1, min_p=0)
        assert_lossless(engine, "go on", Policy.SSR, sampling=sampling, **LIMITS)


HOSTILE = {
    "random": "".join(chr(random.Random(0).randrange(33, 127)) for _ in range(300)),
    "empty": "",
    "very long": "ab cd " * 3000,
    "special texts": "<|im_end|></think><think><|im_start|>assistant\n" * 5,
    "broken characters": "\udcff\ufffd\0é漢🙂" * 20,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("thinking", ["off", "native", "prompted"])
def test_hostile_predictions(engine: Engine, name: str, thinking: str) -> None:
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature, seed=5, top_k=0, top_p=1, min_p=0)
        fields = {"sampling": sampling, "thinking": thinking, **LIMITS}
        plain = run(engine, "begin", policy=Policy.PLAIN, **fields)
        hostile = run(engine, "begin", policy=Policy.SSR, prediction=HOSTILE[name], **fields)
        assert_same(plain, hostile)


def test_a_prediction_wrong_from_the_first_token_or_later(engine: Engine) -> None:
    fields = {"sampling": Sampling(temperature=0), "thinking": "off", "max_tokens": 100}
    plain = run(engine, "begin", policy=Policy.PLAIN, **fields)
    answer = plain.completion.answer
    for wrong_at in (0, 1, 10, 40):
        prediction = answer[:wrong_at] + "#" + answer[wrong_at + 1 :]
        assert_same(plain, run(engine, "begin", policy=Policy.SSR, prediction=prediction, **fields))


def test_a_right_prediction_is_accepted_in_long_runs(endless: Engine) -> None:
    fields = {"sampling": Sampling(temperature=0), "thinking": "off", "max_tokens": 120}
    plain = run(endless, "begin", policy=Policy.PLAIN, **fields)
    right = run(endless, "begin", policy=Policy.SSR, prediction=plain.completion.answer, **fields)
    assert_same(plain, right)
    assert right.completion.stats.tokens_per_step > 5


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0, repetition_penalty=1.3),
        Sampling(temperature=0.9, seed=1, presence_penalty=0.8),
        Sampling(temperature=0.9, seed=2, frequency_penalty=0.5, top_k=12),
        Sampling(temperature=1.2, seed=3, top_p=0.8),
        Sampling(temperature=1.2, seed=4, min_p=0.1, logit_bias={40: 3.0, 70: -50.0}),
    ],
    ids=lambda sampling: str(sampling.model_dump(exclude_defaults=True)),
)
def test_every_sampling_setting(engine: Engine, sampling: Sampling) -> None:
    for prompt in PROMPTS:
        assert_lossless(engine, prompt, Policy.SSR, sampling=sampling, **LIMITS)


def test_what_earlier_requests_left_in_the_cache_changes_nothing(endless: Engine) -> None:
    """The session's suffix cache only proposes."""
    sampling = Sampling(temperature=0.8, seed=6, top_k=0, top_p=1, min_p=0)
    plain = run(endless, "begin", policy=Policy.PLAIN, sampling=sampling, **LIMITS)
    endless.forget()
    for prompt in (*PROMPTS, "begin"):
        again = run_on(endless, prompt, policy=Policy.SSR, sampling=sampling, **LIMITS)
    again = run_on(endless, "begin", policy=Policy.SSR, sampling=sampling, **LIMITS)
    assert_same(plain, again)
    assert again.completion.stats.tokens_per_step > 5


def test_parked_drafts_that_must_be_given_up_change_nothing_visible(engines) -> None:
    """With too few cells for all drafts, finished ones are dropped and later ones shortened."""
    path = tiny_model("qwen3", chat_template=PREOPENED_TEMPLATE)
    engine = engines.get(path, EngineSettings.exact(n_ctx=1024, draft_cells=64))
    for prompt, temperature in itertools.product(PROMPTS, (0.0, 0.8)):
        sampling = Sampling(temperature=temperature, seed=7, top_k=0, top_p=1, min_p=0)
        done = assert_lossless(engine, prompt, Policy.SSR, sampling=sampling, **LIMITS)
        assert done.stats.drafts
