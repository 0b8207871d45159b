"""Tiny random-weight GGUF models, so that engine tests need no download.

Owns the file format and the shape of the random weights; knows nothing of the engine. The weights
are Q8_0: on a CPU with one thread and flash attention, decoding many rows in one batch then gives
bit for bit the logits of decoding them one by one, and tests can demand equality.

Random weights alone write one byte for ever. Three choices make the text usable in tests:
- Dimension 0 of the residual stream is a constant that no layer writes to, so column 0 of the
  output matrix acts as a bias for each token: text stays printable, and how often thinking is
  closed or the text ended can be set.
- Layers write with `context` strength: 0 makes a Markov chain of the last token (drafts are always
  right), larger values make every earlier token matter (drafts are mostly wrong).
- `opens_thinking` makes a newline call for `<think>`, as a reasoning model opens its turn.

To add an architecture: write its metadata and layers as one more `Arch` in `ARCHS`.
"""

from __future__ import annotations

import atexit
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
FRAGMENTS = ("th", "in", "er", "an", "on", "re", "at", "en", "or", "es", " t", " a", " th", "\n\n")

TURNS = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
)
PLAIN_TEMPLATE = (
    TURNS + "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
"""ChatML that knows nothing of thinking."""

NATIVE_TEMPLATE = TURNS + (
    "{%- if add_generation_prompt -%}"
    "{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking -%}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif -%}"
    "{%- endif -%}"
)
"""ChatML whose model opens `<think>` itself (as Qwen3 does)."""

PREOPENED_TEMPLATE = TURNS + (
    "{%- if add_generation_prompt -%}"
    "{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking -%}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}"
    "{%- else -%}"
    "{{ '<think>\\n' }}"
    "{%- endif -%}"
    "{%- endif -%}"
)
"""ChatML that opens `<think>` for the model (as Qwen3.5 does)."""

EMBED, FEED_FORWARD, LAYERS = 128, 256, 3
HEADS, HEADS_KV, HEAD_DIM = 2, 1, 64

NEVER = -80.0
SHARP = 4.0  # attention that picks single tokens: averages over a long context would not vary
LOUD = 6.0  # deviation of the logits: most top-two gaps are then far above rounding


@dataclass(frozen=True, slots=True)
class Character:
    """How the random model writes. Biases are added to the token's logit (deviation: `LOUD`)."""

    context: float = 0.3
    opens_thinking: bool = True
    close_bias: float = 2.0
    """For `</think>`."""
    end_bias: float = -2.0
    """For `<|im_end|>`, the end-of-text token."""
    byte_bias: float = NEVER
    """For bytes that are not printable ASCII; 0.0 makes text with broken UTF-8."""


def byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in a byte-level BPE (GPT-2's table)."""
    keep = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = itertools.count(256)
    return [chr(byte) if byte in keep else chr(next(spare)) for byte in range(256)]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A real, if small, tokenizer: 256 bytes, a few merges, the special tokens."""

    tokens: list[str]
    merges: list[str]
    types: list[gguf.TokenType]

    @classmethod
    def build(cls) -> Vocabulary:
        alphabet = byte_alphabet()
        tokens, merges = list(alphabet), []
        for fragment in FRAGMENTS:
            *head, last = (alphabet[byte] for byte in fragment.encode())
            merges.append(f"{''.join(head)} {last}")
            tokens.append("".join(head) + last)
        types = [gguf.TokenType.NORMAL] * len(tokens)
        types += [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.USER_DEFINED] * 2
        return cls([*tokens, *SPECIALS], merges, types)

    def id(self, token: str) -> int:
        return self.tokens.index(token)

    def write(self, writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        writer.add_token_merges(self.merges)
        writer.add_bos_token_id(self.id("<|endoftext|>"))
        writer.add_eos_token_id(self.id("<|im_end|>"))
        writer.add_pad_token_id(self.id("<|endoftext|>"))
        writer.add_add_bos_token(False)

    def biases(self, character: Character) -> Array:
        bias = np.zeros(len(self.tokens), np.float32)
        bias[:256] = character.byte_bias
        bias[32:127] = 0.0
        bias[self.id("\u010a\u010a")] = NEVER
        bias[self.id(SPECIALS[0]) :] = NEVER
        bias[self.id("</think>")] = character.close_bias
        bias[self.id("<|im_end|>")] = character.end_bias
        return bias


@dataclass
class Weights:
    """Writes random tensors of one model. Shapes are in ggml's order: inputs first."""

    writer: gguf.GGUFWriter
    random: np.random.Generator
    context: float
    names: set[str] = field(default_factory=set)

    def matrix(self, name: str, values: Array) -> None:
        """A (rows, inputs) matrix, as Q8_0."""
        kind = gguf.GGMLQuantizationType.Q8_0
        packed = gguf.quants.quantize(np.ascontiguousarray(values, np.float32), kind)
        self.writer.add_tensor(f"{name}.weight", packed, raw_dtype=kind)

    def vector(self, name: str, size: int, mean: float) -> None:
        values = mean + 0.1 * self.random.standard_normal(size)
        self.writer.add_tensor(name, values.astype(np.float32))

    def norm(self, name: str, size: int = EMBED, mean: float = 1.0) -> None:
        self.vector(f"{name}.weight", size, mean)

    def gaussian(self, inputs: int, rows: int) -> Array:
        values: Array = self.random.standard_normal((rows, inputs)) / np.sqrt(inputs)
        return values.astype(np.float32)

    def reading(self, name: str, rows: int, scale: float = 1.0) -> None:
        """A matrix that reads the residual stream."""
        self.matrix(name, scale * self.gaussian(EMBED, rows))

    def writing(self, name: str, inputs: int) -> None:
        """A matrix that writes to the residual stream, but never to dimension 0."""
        values = self.context * self.gaussian(inputs, EMBED)
        values[0] = 0.0
        self.matrix(name, values)

    def embedding(self, vocabulary: Vocabulary, character: Character) -> None:
        """Token embeddings, the output matrix, and the norm between."""
        size = len(vocabulary.tokens)
        embed = self.random.standard_normal((size, EMBED)).astype(np.float32)
        embed[:, 0] = 2.0
        self.matrix("token_embd", embed)
        self.norm("output_norm")
        output = LOUD * self.gaussian(EMBED, size) - 0.2 * embed  # no token likes to follow itself
        if character.opens_thinking:
            output[vocabulary.id("<think>")] = 1.6 * embed[vocabulary.id("\u010a")]
        output[:, 0] = vocabulary.biases(character) / 2.0
        self.matrix("output", output)


def attention(weights: Weights, layer: str, *, qk_norm: bool = False, bias: bool = False) -> None:
    weights.norm(f"{layer}.attn_norm")
    for part, heads in (("q", HEADS), ("k", HEADS_KV), ("v", HEADS_KV)):
        weights.reading(f"{layer}.attn_{part}", heads * HEAD_DIM, SHARP if part == "q" else 1.0)
        if bias:
            weights.vector(f"{layer}.attn_{part}.bias", heads * HEAD_DIM, 0.0)
        if qk_norm and part != "v":
            weights.norm(f"{layer}.attn_{part}_norm", HEAD_DIM, SHARP if part == "q" else 1.0)
    weights.writing(f"{layer}.attn_output", HEADS * HEAD_DIM)


def feed_forward(weights: Weights, layer: str) -> None:
    weights.norm(f"{layer}.ffn_norm")
    weights.reading(f"{layer}.ffn_gate", FEED_FORWARD)
    weights.reading(f"{layer}.ffn_up", FEED_FORWARD)
    weights.writing(f"{layer}.ffn_down", FEED_FORWARD)


def dense_metadata(writer: gguf.GGUFWriter) -> None:
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10_000.0)


def dense_layer(qk_norm: bool = False, bias: bool = False) -> Callable[[Weights, int], None]:
    def write(weights: Weights, index: int) -> None:
        attention(weights, f"blk.{index}", qk_norm=qk_norm, bias=bias)
        feed_forward(weights, f"blk.{index}")

    return write


@dataclass(frozen=True, slots=True)
class Arch:
    """What sets one architecture's file apart from another's."""

    metadata: Callable[[gguf.GGUFWriter], None]
    layer: Callable[[Weights, int], None]


ARCHS = {
    "llama": Arch(dense_metadata, dense_layer()),
    "qwen2": Arch(dense_metadata, dense_layer(bias=True)),
    "qwen3": Arch(dense_metadata, dense_layer(qk_norm=True)),
}


def make_tiny(
    path: Path,
    arch: str = "llama",
    *,
    seed: int = 0,
    chat_template: str | None = NATIVE_TEMPLATE,
    n_ctx_train: int = 4096,
    character: Character | None = None,
) -> Path:
    """Write a model of about 0.5 MB to `path` and return it. `chat_template=None` leaves it out."""
    character = character or Character()
    writer = gguf.GGUFWriter(path, arch)
    vocabulary = Vocabulary.build()
    _write_sizes(writer, n_ctx_train, len(vocabulary.tokens))
    ARCHS[arch].metadata(writer)
    vocabulary.write(writer)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    weights = Weights(writer, np.random.default_rng(seed), character.context)
    weights.embedding(vocabulary, character)
    for index in range(LAYERS):
        ARCHS[arch].layer(weights, index)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_sizes(writer: gguf.GGUFWriter, n_ctx_train: int, n_vocab: int) -> None:
    writer.add_context_length(n_ctx_train)
    writer.add_embedding_length(EMBED)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS_KV)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(n_vocab)


@cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="ssr-tiny-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


@cache
def tiny_model(
    arch: str = "llama",
    seed: int = 0,
    *,
    chat_template: str | None = NATIVE_TEMPLATE,
    n_ctx_train: int = 4096,
    character: Character | None = None,
) -> Path:
    """The same as `make_tiny`, made once per test run and removed at its end."""
    path = _folder() / f"{arch}-{seed}-{len(list(_folder().iterdir()))}.gguf"
    return make_tiny(
        path,
        arch,
        seed=seed,
        chat_template=chat_template,
        n_ctx_train=n_ctx_train,
        character=character,
    )
