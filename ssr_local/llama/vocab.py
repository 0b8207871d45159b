"""Text to token ids and back, by the model's own vocabulary."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from ssr_local.llama.library import lib


class TextSegment(Protocol):
    """A piece of a prompt. In a special segment control tokens are parsed; elsewhere their text is
    just text."""

    @property
    def text(self) -> str: ...
    @property
    def special(self) -> bool: ...


class Vocab:
    """Tokenizer and detokenizer of one loaded model. Safe to use from several threads."""

    def __init__(self, pointer: Any, owner: object) -> None:
        self._pointer = pointer
        self._owner = owner  # the vocabulary lives inside the model's memory
        self.n_tokens: int = lib.llama_vocab_n_tokens(pointer)
        self.bos = self._known(lib.llama_vocab_bos(pointer))
        self.eos = self._known(lib.llama_vocab_eos(pointer))
        self.adds_bos: bool = lib.llama_vocab_get_add_bos(pointer)
        self.piece = lru_cache(maxsize=65_536)(self._piece)
        self.is_end = lru_cache(maxsize=65_536)(self._is_end)

    @staticmethod
    def _known(token: int) -> int | None:
        return token if token >= 0 else None

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`, with no token added in front.

        `special` parses the texts of control tokens (`<|im_end|>`) into these tokens.
        """
        data = text.encode("utf-8", "surrogatepass")
        size = len(data) + 8
        while True:
            tokens = (lib.llama_token * size)()
            count = lib.llama_tokenize(self._pointer, data, len(data), tokens, size, False, special)
            if count >= 0:
                return list(tokens[:count])
            size = -count

    def tokenize_prompt(self, segments: Sequence[TextSegment]) -> list[int]:
        """Token ids of a rendered prompt, with the model's BOS in front where it wants one."""
        tokens = [t for s in segments for t in self.tokenize(s.text, special=s.special)]
        if self.adds_bos and self.bos is not None and tokens[:1] != [self.bos]:
            tokens.insert(0, self.bos)
        return tokens

    def special_texts(self) -> tuple[list[str], list[str]]:
        """The texts of all control tokens, and of all user-defined ones."""
        control, user_defined = [], []
        for token in range(self.n_tokens):
            attributes = lib.llama_vocab_get_attr(self._pointer, token)
            if attributes & lib.LLAMA_TOKEN_ATTR_CONTROL:
                control.append(self.control_text(token))
            elif attributes & lib.LLAMA_TOKEN_ATTR_USER_DEFINED:
                user_defined.append(self.control_text(token))
        return control, user_defined

    def text(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without control tokens; broken characters become U+FFFD."""
        return b"".join(self.piece(t) for t in tokens).decode("utf-8", "replace")

    def control_text(self, token: int) -> str:
        """The text of a token, control tokens included."""
        return self._piece(token, special=True).decode("utf-8", "replace")

    def _piece(self, token: int, special: bool = False) -> bytes:
        """The bytes of one token: possibly part of a character; empty for a control token unless
        `special`."""
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            count = lib.llama_token_to_piece(self._pointer, token, buffer, size, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            size = -count

    def _is_end(self, token: int) -> bool:
        """Whether the token ends a turn or the text."""
        return bool(lib.llama_vocab_is_eog(self._pointer, token))
