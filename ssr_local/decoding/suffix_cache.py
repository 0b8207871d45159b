"""Suffix cache: where did this context occur before, and what followed it there?

Owns the index over all tokens that may repeat in an answer: prompt, CoT, drafts, earlier answers
and the answer itself while it is written. Knows nothing of drafts' alignment, of probabilities
learnt from acceptance, or of how long a span should be (`ssr_local.decoding.proposer`).

The index is a suffix automaton (DAWG) over several documents (Blumer et al. 1985, 1987), built
online: any document may grow at any time. A *state* stands for all strings with the same set of end
positions; its suffix link leads to the longest shorter string with more of them. Appending costs
amortised O(1) while documents are written one after another; when they grow in turns, long common
parts can be split again and again, and the worst case is superlinear (Takagi et al., Algorithmica
2020). Real drafts, CoT and answer that grow together stay near the linear cost.

Promises:
- A match is the longest suffix of the last `WINDOW` context tokens that occurs inside one document
  *and was followed by a token there*. So a context that is itself the end of a document never
  matches just itself.
- Counts are exact up to `COUNT_DEPTH`, and so is which continuation came last. A string that occurs
  more often has a count of at least `COUNT_DEPTH` and at most the true one: that is the price for
  no text (`aaaa`) making an append slow.
- Memory is bounded: two generations of `max_tokens / 2` tokens each. A full generation becomes the
  old one, which is read but not written, and the one before it is dropped. A document that goes on
  in a new generation starts there as after a document boundary.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WINDOW = 64
"""Context tokens that a cursor remembers. Sixty-four equal tokens leave no doubt about the place,
and a short memory lets a cursor search afresh at each question: always exact, whatever grew."""

COUNT_DEPTH = 48
"""States whose count one append may raise: the document's end and its ever shorter suffixes. Each
has more occurrences than the one before, so a string with n occurrences comes at the n-th place at
the latest, and its count is exact while n is at most this. Ordinary text needs about ten."""

_ROOT = 0
_NONE = 0
"""No transition. The root is never a transition's target, so its number is free to say so."""


class _Automaton:
    """One generation: states as parallel arrays, indexed by state number.

    Most states have one transition, which sits in two arrays; only branching states get a dict.
    That is about a fifth of the memory of a dict for each state.
    """

    __slots__ = ("branches", "count", "latest", "length", "link", "target", "token", "tokens")

    def __init__(self) -> None:
        self.length = array("i", [0])
        """Tokens in the longest string of the state."""
        self.link = array("i", [-1])
        self.count = array("i", [0])
        """Times that the state's strings occur (exact up to `COUNT_DEPTH`)."""
        self.latest = array("q", [0])
        """When the last of these occurrences was appended."""
        self.token = array("q", [-1])
        """First transition: its token..."""
        self.target = array("i", [_NONE])
        """...and the state it leads to."""
        self.branches: dict[int, dict[int, int]] = {}
        """All further transitions: state -> token -> state."""
        self.tokens = 0

    def follow(self, state: int, token: int) -> int:
        """The state reached from `state` by `token`, or `_NONE`."""
        if self.token[state] == token:
            return self.target[state]
        more = self.branches.get(state)
        return more.get(token, _NONE) if more else _NONE

    def append(self, last: int, token: int) -> int:
        """Append `token` to the document that ends in state `last`; return its new end."""
        self.tokens += 1
        known = self.follow(last, token)
        if known == _NONE:
            end = self._append_new(last, token)
        elif self.length[known] == self.length[last] + 1:
            end = known  # another document has the same beginning
        else:
            end = self._split(last, token, known)
        self._count(end)
        return end

    def transitions(self, state: int) -> Iterator[tuple[int, int]]:
        """(token, target) of each continuation of `state`."""
        if self.target[state] != _NONE:
            yield self.token[state], self.target[state]
            yield from self.branches.get(state, {}).items()

    def match(self, context: Sequence[int] | deque[int]) -> tuple[int, int]:
        """(state, length) of the longest suffix of `context` that has a continuation."""
        state, length = _ROOT, 0
        follow = self.follow
        for token in context:
            target = follow(state, token)
            while target == _NONE and state != _ROOT:
                state = self.link[state]
                length = self.length[state]
                target = follow(state, token)
            if target != _NONE:
                state, length = target, length + 1
        return self.continued(state, length)

    def continued(self, state: int, length: int) -> tuple[int, int]:
        """Shorten the string until something follows it somewhere."""
        while self.target[state] == _NONE and state != _ROOT:
            state = self.link[state]
            length = self.length[state]
        return state, length

    def _append_new(self, last: int, token: int) -> int:
        """Append a token that never followed this document so far."""
        end = self._add_state(self.length[last] + 1)
        state = last
        while state >= 0 and not self.follow(state, token):
            self._connect(state, token, end)
            state = self.link[state]
        if state < 0:
            self.link[end] = _ROOT
            return end
        known = self.follow(state, token)
        if self.length[known] != self.length[state] + 1:
            known = self._split(state, token, known)
        self.link[end] = known
        return end

    def _split(self, state: int, token: int, whole: int) -> int:
        """Give the shorter strings of `whole`, up to `state` + `token`, a state of their own."""
        part = self._add_state(self.length[state] + 1)
        self.link[part], self.link[whole] = self.link[whole], part
        self.count[part], self.latest[part] = self.count[whole], self.latest[whole]
        self.token[part], self.target[part] = self.token[whole], self.target[whole]
        if whole in self.branches:
            self.branches[part] = self.branches[whole].copy()
        while state >= 0 and self.follow(state, token) == whole:
            self._connect(state, token, part)
            state = self.link[state]
        return part

    def _add_state(self, length: int) -> int:
        self.length.append(length)
        self.link.append(_ROOT)
        self.count.append(0)
        self.latest.append(0)
        self.token.append(-1)
        self.target.append(_NONE)
        return len(self.length) - 1

    def _connect(self, state: int, token: int, target: int) -> None:
        if self.target[state] == _NONE or self.token[state] == token:
            self.token[state], self.target[state] = token, target
        else:
            self.branches.setdefault(state, {})[token] = target

    def _count(self, end: int) -> None:
        """Count a new occurrence for the document's end and its suffixes, longest first."""
        count, latest, link, now = self.count, self.latest, self.link, self.tokens
        state = end
        for _ in range(COUNT_DEPTH):
            if state <= _ROOT:
                return
            count[state] += 1
            latest[state] = now
            state = link[state]


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens that followed a match, one path of most frequent continuations.

    All lists have one entry for each token.
    """

    tokens: list[int]
    match_lengths: list[int]
    """Tokens before this one that are known to have occurred together before it."""
    counts: list[int]
    """How often this token followed there."""
    totals: list[int]
    """How often anything followed there."""

    @property
    def match_length(self) -> int:
        """Length of the match that the span begins after; 0 for an empty span."""
        return self.match_lengths[0] if self.tokens else 0


class Document:
    """One open text of the cache. Never closed: one that is no longer appended to is just text."""

    __slots__ = ("_cache", "_generation", "_state")

    def __init__(self, cache: SuffixCache) -> None:
        self._cache = cache
        self._generation = -1
        self._state = _ROOT

    def append(self, token: int) -> None:
        automaton, generation = self._cache._writable()
        if generation != self._generation:
            self._generation, self._state = generation, _ROOT
        self._state = automaton.append(self._state, token)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.append(token)


class Cursor:
    """Follows a context and answers what came next where its end occurred before.

    Reads the cache as it is when asked, so documents may grow and generations go between calls.
    """

    __slots__ = ("_cache", "_context")

    def __init__(self, cache: SuffixCache, context: Sequence[int] = ()) -> None:
        self._cache = cache
        self._context = deque(context[-WINDOW:], WINDOW)

    def advance(self, token: int) -> None:
        self._context.append(token)

    @property
    def match_length(self) -> int:
        """Length of the longest match; 0 when even the last token has no earlier continuation."""
        return self._match()[2]

    def continuations(self) -> dict[int, int]:
        """Token -> how often it followed the match. Empty without a match."""
        automaton, state, length = self._match()
        if not length:
            return {}
        return {token: automaton.count[target] for token, target in automaton.transitions(state)}

    def propose(self, max_tokens: int) -> Span:
        """Walk from the match: at each place the most frequent continuation, of equals the latest.

        Where the text ends the walk goes on from the longest shorter match, so a loop in the text
        gives a span longer than the loop.
        """
        span = Span([], [], [], [])
        automaton, state, length = self._match()
        while length and len(span.tokens) < max_tokens:
            state = _step(automaton, state, length, span)
            state, length = automaton.continued(state, length + 1)
        return span

    def _match(self) -> tuple[_Automaton, int, int]:
        """(generation, state, length) of the longest match; of equals the newest generation's."""
        matches = ((part, *part.match(self._context)) for part in self._cache._generations())
        return max(matches, key=lambda match: match[2])


def _step(automaton: _Automaton, state: int, length: int, span: Span) -> int:
    """Add the best continuation of `state` to `span`; return the state it leads to."""
    count, latest = automaton.count, automaton.latest
    total, best, best_rank, best_token = 0, _NONE, (-1, -1), -1
    for token, target in automaton.transitions(state):
        rank = (count[target], latest[target])
        total += rank[0]
        if rank > best_rank:
            best, best_rank, best_token = target, rank, token
    span.tokens.append(best_token)
    span.match_lengths.append(length)
    span.counts.append(best_rank[0])
    span.totals.append(total)
    return best


class SuffixCache:
    """All documents of an engine (or of one request, in a replay).

    Args:
        max_tokens: tokens kept at most; the oldest half goes when it is reached. About 100 bytes
            a token.
    """

    def __init__(self, max_tokens: int = 200_000) -> None:
        self._capacity = max(1, max_tokens // 2)
        self._current = _Automaton()
        self._old: _Automaton | None = None
        self._generation = 0

    def document(self) -> Document:
        """Open a new document. Matches never reach across documents."""
        return Document(self)

    def cursor(self, context: Sequence[int] = ()) -> Cursor:
        """A cursor that has already been fed `context`."""
        return Cursor(self, context)

    @property
    def tokens(self) -> int:
        """Tokens held now."""
        return sum(part.tokens for part in self._generations())

    def _generations(self) -> list[_Automaton]:
        return [self._current] if self._old is None else [self._current, self._old]

    def _writable(self) -> tuple[_Automaton, int]:
        """The current generation and its number, after making room for one token."""
        if self._current.tokens >= self._capacity:
            self._old, self._current = self._current, _Automaton()
            self._generation += 1
        return self._current, self._generation
