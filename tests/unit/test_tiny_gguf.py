"""The tiny models must be what engine tests rely on: loadable, varied, reproducible, bit-exact."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.bare_model import BareModel, bare_model
from support.tiny_gguf import (
    ARCHS,
    NATIVE_TEMPLATE,
    NEVER,
    Character,
    Vocabulary,
    make_tiny,
    tiny_model,
)

from ssr_local.gguf import read_header

PROMPT = "<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n"
ENDLESS = Character(end_bias=NEVER, close_bias=NEVER)
VOCABULARY = Vocabulary.build()


def prompt(model: BareModel) -> list[int]:
    return model.vocab.tokenize(PROMPT, special=True)


def greedy(model: BareModel, count: int) -> Iterator[tuple[int, float]]:
    """Tokens and the gap between the two most likely ones."""
    logits = model.read(prompt(model))
    for _ in range(count):
        second, first = np.sort(logits)[-2:]
        token = int(logits.argmax())
        yield token, float(first - second)
        logits = model.read([token])


@pytest.mark.parametrize("arch", ARCHS)
def test_greedy_text_varies_and_is_clear_cut(arch: str) -> None:
    with bare_model(tiny_model(arch, character=ENDLESS)) as model:
        ids, gaps = zip(*greedy(model, 120), strict=True)
    assert len(set(ids)) > 30
    assert len({ids[i : i + 4] for i in range(len(ids) - 3)}) > 60
    assert np.quantile(gaps, 0.1) > 0.1
    assert all(32 <= token < 127 or token >= 256 for token in ids)


@pytest.mark.parametrize("arch", ARCHS)
def test_thinking_is_opened_closed_and_the_text_ended(arch: str) -> None:
    eager = Character(close_bias=8.0, end_bias=6.0)
    with bare_model(tiny_model(arch, character=eager)) as model:
        ids = [token for token, _ in greedy(model, 120)]
    assert ids[0] == VOCABULARY.id("<think>")
    assert VOCABULARY.id("</think>") in ids
    assert VOCABULARY.id("<|im_end|>") in ids


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_of_one_batch_equal_rows_decoded_alone(arch: str) -> None:
    with bare_model(tiny_model(arch)) as model:
        ids = prompt(model)
        together = model.decode(ids)
        model.restart()
        alone = [model.read([token]) for token in ids]
    assert np.array_equal(together, alone)


def test_the_vocabulary_is_a_real_tokenizer() -> None:
    text = "the answer: 42\n\nça va 🦙 the"
    markers = ["<think>", "</think>", "<|im_end|>"]
    with bare_model(tiny_model()) as model:
        ids = model.vocab.tokenize(text)
        assert model.vocab.text(ids) == text
        assert len(ids) < len(text.encode())
        found = model.vocab.tokenize("".join(markers), special=True)
        assert found == [VOCABULARY.id(marker) for marker in markers]
        assert model.vocab.eos == VOCABULARY.id("<|im_end|>")
        assert VOCABULARY.id("<|im_end|>") not in model.vocab.tokenize("<|im_end|>")


def test_the_seed_and_nothing_else_makes_the_weights(tmp_path: Path) -> None:
    one, same, other = (
        make_tiny(tmp_path / f"{name}.gguf", seed=seed).read_bytes()
        for name, seed in (("one", 0), ("same", 0), ("other", 1))
    )
    assert one == same != other


def test_metadata_is_what_was_asked_for(tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "t.gguf", "qwen3", chat_template="hi", n_ctx_train=777)
    metadata = read_header(path).metadata
    assert metadata["tokenizer.chat_template"] == "hi"
    assert metadata["qwen3.context_length"] == 777
    bare = read_header(make_tiny(tmp_path / "bare.gguf", chat_template=None))
    assert "tokenizer.chat_template" not in bare.metadata
    assert read_header(tiny_model()).metadata["tokenizer.chat_template"] == NATIVE_TEMPLATE


def test_a_model_is_made_once() -> None:
    assert tiny_model("llama", 3) == tiny_model("llama", 3) != tiny_model("llama", 4)
