"""Turns the main sequence's tokens into the events a user sees: reasoning, its end, the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ssr_local.chat.splitter import Piece, ThinkingSplitter
from ssr_local.chat.text import Utf8Stream
from ssr_local.decoding.format import CourseSpec, ThinkingFormat
from ssr_local.decoding.writer import AnswerWriter
from ssr_local.events import AnswerDelta, Origin, ReasoningDelta, ThinkingEnd, ThinkingEnded
from ssr_local.llama.vocab import Vocab


class Listener:
    """Hears every decided token of the main sequence, in order, and emits what is certain."""

    def __init__(self, spec: CourseSpec, vocab: Vocab, emit: Callable[..., None]) -> None:
        self._vocab = vocab
        self._emit = emit
        self._utf8 = Utf8Stream()
        self._writer = AnswerWriter(spec.stops)
        self._thinking = spec.thinking is not None
        self._markers = spec.thinking.marker_tokens if spec.thinking else frozenset[int]()
        self._splitter = _splitter(spec.thinking)
        self._answer_begun = False
        self._unreported = 0

    @property
    def in_thinking(self) -> bool:
        """Thinking has begun and not ended, as far as the text shows."""
        return self._thinking and self._splitter.in_thinking

    @property
    def thinking_expected(self) -> bool:
        """The next token may still be a thought."""
        return self._thinking and not (self._answer_begun or self._splitter.closed)

    @property
    def never_thought(self) -> bool:
        """The model answered without opening its thinking."""
        return self._answer_begun and not self._splitter.closed

    def hear_thought(self, token: int) -> None:
        self._unreported += 1
        text = self._utf8.feed(self._vocab.piece(token, token in self._markers))
        self._report(self._splitter.feed(text))

    def hear_forced_close(self) -> None:
        """The engine writes the close: what was held back is reasoning after all."""
        self._report(self._splitter.feed(self._utf8.flush()))
        if self._splitter.in_thinking:
            self._report(self._splitter.flush())

    def _report(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.kind == "reasoning":
                self._emit(ReasoningDelta, text=piece.text, tokens=self._unreported)
            else:
                self._answer_begun = True
                self._writer.feed(piece.text, Origin.MODEL, tokens=self._unanswered())
            self._unreported = 0

    def _unanswered(self) -> int:
        """Tokens behind an answer piece: none when it is only the rest of the closing token."""
        return 0 if self._splitter.closed else self._unreported

    def end_thinking(self, tokens: int, reason: ThinkingEnd) -> None:
        self._thinking = False
        self._emit(ThinkingEnded, tokens=tokens, reason=reason)

    def hear_answer(self, token: int, origin: Origin, match_length: int) -> bool:
        """Returns whether the token completed a stop string."""
        self._writer.feed(self._utf8.feed(self._vocab.piece(token)), origin, match_length)
        return self._writer.stopped

    def flush_answer(self) -> None:
        """Emit the answer text that has become certain."""
        for run in self._writer.take():
            self._emit(
                AnswerDelta,
                text=run.text,
                origin=run.origin,
                tokens=run.tokens,
                match_length=run.match_length,
            )

    def finish(self) -> None:
        """No token follows: emit what was held back."""
        tail = self._utf8.flush()
        if self._thinking:
            self._report(self._splitter.feed(tail))
            self._report(self._splitter.flush())
            return
        if not self._writer.stopped:
            self._writer.feed(tail, Origin.MODEL, tokens=0)
            self._writer.finish()
        self.flush_answer()


def _splitter(format: ThinkingFormat | None) -> ThinkingSplitter:
    if format is None:
        return ThinkingSplitter("", "", opened=False)
    return ThinkingSplitter(format.open, format.close, opened=format.opened)
