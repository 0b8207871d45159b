"""The tiny models must be what engine tests rely on: loadable, varied, reproducible, bit-exact."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from llama_cpp import Llama
from support.tiny_gguf import (
    ARCHS,
    NATIVE_TEMPLATE,
    NEVER,
    Character,
    Vocabulary,
    make_tiny,
    tiny_model,
)

PROMPT = "<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n"
ENDLESS = Character(end_bias=NEVER, close_bias=NEVER)
VOCABULARY = Vocabulary.build()


def load(path: Path) -> Llama:
    return Llama(str(path), n_ctx=512, n_threads=1, flash_attn=True, logits_all=True, verbose=False)


def tokens(model: Llama, text: str) -> list[int]:
    return list(model.tokenize(text.encode(), add_bos=False, special=True))


def greedy(model: Llama, count: int) -> Iterator[tuple[int, float]]:
    """Tokens and the gap between the two most likely ones."""
    model.reset()
    model.eval(tokens(model, PROMPT))
    for _ in range(count):
        logits = model.scores[model.n_tokens - 1]
        second, first = np.sort(logits)[-2:]
        token = int(logits.argmax())
        yield token, float(first - second)
        model.eval([token])


@pytest.mark.parametrize("arch", ARCHS)
def test_greedy_text_varies_and_is_clear_cut(arch: str) -> None:
    ids, gaps = zip(*greedy(load(tiny_model(arch, character=ENDLESS)), 120), strict=True)
    assert len(set(ids)) > 30
    assert len({ids[i : i + 4] for i in range(len(ids) - 3)}) > 60
    assert np.quantile(gaps, 0.1) > 0.1
    assert all(32 <= token < 127 or token >= 256 for token in ids)


@pytest.mark.parametrize("arch", ARCHS)
def test_thinking_is_opened_closed_and_the_text_ended(arch: str) -> None:
    eager = Character(close_bias=8.0, end_bias=6.0)
    ids = [token for token, _ in greedy(load(tiny_model(arch, character=eager)), 120)]
    assert ids[0] == VOCABULARY.id("<think>")
    assert VOCABULARY.id("</think>") in ids
    assert VOCABULARY.id("<|im_end|>") in ids


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_of_one_batch_equal_rows_decoded_alone(arch: str) -> None:
    model = load(tiny_model(arch))
    ids = tokens(model, PROMPT)
    model.eval(ids)
    together = model.scores[: len(ids)].copy()
    model.reset()
    for token in ids:
        model.eval([token])
    assert np.array_equal(together, model.scores[: len(ids)])


def test_the_vocabulary_is_a_real_tokenizer() -> None:
    model = load(tiny_model())
    text = "the answer: 42\n\nça va 🦙 the"
    ids = tokens(model, text)
    assert model.detokenize(ids).decode() == text
    assert len(ids) < len(text.encode())
    assert tokens(model, "<think></think><|im_end|>") == [
        VOCABULARY.id(token) for token in ("<think>", "</think>", "<|im_end|>")
    ]
    assert model.token_eos() == VOCABULARY.id("<|im_end|>")
    as_text = model.tokenize(b"<|im_end|>", add_bos=False, special=False)
    assert VOCABULARY.id("<|im_end|>") not in as_text


def test_the_seed_and_nothing_else_makes_the_weights(tmp_path: Path) -> None:
    one, same, other = (
        make_tiny(tmp_path / f"{name}.gguf", seed=seed).read_bytes()
        for name, seed in (("one", 0), ("same", 0), ("other", 1))
    )
    assert one == same != other


def test_metadata_is_what_was_asked_for(tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "t.gguf", "qwen3", chat_template="hi", n_ctx_train=777)
    metadata = load(path).metadata
    assert metadata["tokenizer.chat_template"] == "hi"
    assert metadata["qwen3.context_length"] == "777"
    bare = load(make_tiny(tmp_path / "bare.gguf", chat_template=None))
    assert "tokenizer.chat_template" not in bare.metadata
    assert load(tiny_model()).metadata["tokenizer.chat_template"] == NATIVE_TEMPLATE


def test_a_model_is_made_once() -> None:
    assert tiny_model("llama", 3) == tiny_model("llama", 3) != tiny_model("llama", 4)
