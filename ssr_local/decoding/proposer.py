"""Proposer: which tokens are worth verifying next?

Owns the choice between following the aligned draft and a suffix-cache match, how far to follow, and
the estimates behind both. Pure: token ids in, `Proposal` out. It decides nothing about the output
(the target model does), so a bad proposal costs time and never text. What a row costs on this
machine is the engine's business: it may verify fewer tokens than proposed (`Proposal.first`).

How long a span should be follows from one estimate: the chance that a token is right when the L
tokens before it agreed with the text it is copied from. On recorded traces L is by far the best
sign (0.3 at one token, 0.6 at two or three, 0.99 at thirty). A span goes on while the chance that
*all* of it is right stays above `min_probability`; between draft and suffix match the one with more
expected accepted tokens wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Protocol

from ssr_local.decoding.suffix_cache import SuffixCache
from ssr_local.events import Origin

PRIOR_FAILURES = 2.0
"""Before anything is learnt a token after L agreeing ones is right with (L + 1/2) / (L + 1/2 + 2):
L successes, half of one for luck, and two failures to come. Near the traces' rates, a bit low."""

PRIOR_WEIGHT = 16
"""Tokens of experience that the prior is worth."""

MEMORY = 512
"""Tokens after which an evidence class halves its tallies, so that newer experience counts more."""

START_LENGTH = 8
"""Agreement granted to a draft at its first token. Draft and answer both begin right after the same
close, so this is a good match before any token of it was compared."""

REACH = 16
"""How far from its expected place in the draft the cursor looks after a mismatch: about the size of
an inserted or deleted line. Anything farther is for the suffix cache."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens to verify in one target pass; may be empty."""

    tokens: list[int]
    origin: Origin
    match_length: int
    """Context tokens that the suffix match covers; 0 when the draft proposes."""
    probabilities: list[float]
    """For each token the estimate that it is right, given that those before it are."""

    @classmethod
    def empty(cls) -> Proposal:
        """Nothing: a plain step."""
        return cls([], Origin.MODEL, 0, [])

    @property
    def expected_accepted(self) -> float:
        """Expected number of accepted tokens when all are verified."""
        return float(sum(accumulate(self.probabilities, mul)))

    def first(self, count: int) -> Proposal:
        """The same proposal cut to its first `count` tokens."""
        tokens, chances = self.tokens[:count], self.probabilities[:count]
        return Proposal(tokens, self.origin, self.match_length, chances)


class Proposer(Protocol):
    """Speculates on one branch: the answer, or a draft."""

    def propose(self, max_tokens: int) -> Proposal:
        """What to verify next, at most `max_tokens` tokens."""
        ...

    def advance(self, tokens: Sequence[int]) -> None:
        """What the branch has really written since the last call."""
        ...


@dataclass(frozen=True, slots=True)
class ProposerSettings:
    min_probability: float = 0.05
    """A token is proposed while it and all before it are right with at least this chance. On the
    recorded traces 0.02 gains 3 % more tokens a step for 28 % more rows, and 0.1 loses 2 % for 22 %
    fewer. Where rows cost much the engine cuts the proposal further."""
    max_tokens: int = 32
    """Longest span, whatever the caller would take: batches beyond it stop being nearly free."""


class Reliability:
    """How often tokens after L agreeing ones were right, learnt online for each origin.

    An engine keeps one for its model; a proposer without one starts from the prior. L is put in
    classes by powers of two: 0, 1, 2-3, 4-7, ... 64 and more.
    """

    def __init__(self) -> None:
        self._tallies: dict[tuple[Origin, int], tuple[float, float]] = {}

    def estimate(self, origin: Origin, length: int) -> float:
        right, seen = self._tallies.get(_evidence_class(origin, length), (0.0, 0.0))
        return (_prior(length) * PRIOR_WEIGHT + right) / (PRIOR_WEIGHT + seen)

    def record(self, origin: Origin, length: int, right: bool) -> None:
        key = _evidence_class(origin, length)
        hits, seen = self._tallies.get(key, (0.0, 0.0))
        fade = 0.5 if seen >= MEMORY else 1.0
        self._tallies[key] = (hits * fade + right, seen * fade + 1)


def _prior(length: int) -> float:
    return (length + 0.5) / (length + 0.5 + PRIOR_FAILURES)


def _evidence_class(origin: Origin, length: int) -> tuple[Origin, int]:
    return origin, min(length, 64).bit_length()


class AlignedDraft:
    """A draft and the place in it that the answer has come to.

    While the answer agrees, the cursor moves along and `agreed` counts the tokens. At a mismatch
    the place is found again by the longest stretch before it that equals the answer's end: near
    where it should be, the nearest of equals. That covers substituted, inserted and deleted tokens.
    Without such a stretch the cursor keeps pace with the answer and has nothing to say for itself.

    Args:
        tokens: the draft; its first token belongs where the answer's first one does.
        realign: False stops at the first mismatch for good (the plain prefix rule).
    """

    def __init__(self, tokens: Sequence[int], *, realign: bool = True) -> None:
        self._tokens = tokens
        self._realign = realign
        self._place = 0
        self._recent: deque[int] = deque(maxlen=REACH)
        self.agreed = START_LENGTH

    def ahead(self, max_tokens: int) -> Sequence[int]:
        """The draft's next tokens; none while it has lost the answer."""
        if not self.agreed:
            return []
        return self._tokens[self._place : self._place + max_tokens]

    def advance(self, token: int) -> None:
        self._recent.append(token)
        expected = self._place + 1
        if self.agreed and self._tokens[self._place : expected] == [token]:
            self._place, self.agreed = expected, self.agreed + 1
        elif self._realign:
            self._place, self.agreed = self._nearest(expected)
        else:
            self.agreed = 0

    def _nearest(self, expected: int) -> tuple[int, int]:
        """(place, agreement) of the best place around `expected`; agreement 0 if there is none."""
        low = max(1, expected - REACH)
        high = min(len(self._tokens), expected + REACH)
        places = range(low, high + 1)
        ranked = ((self._agreement(place), -abs(place - expected), place) for place in places)
        agreed, _, place = max(ranked, default=(0, 0, expected))
        return (place, agreed) if agreed else (expected, 0)

    def _agreement(self, place: int) -> int:
        """How many of the answer's last tokens stand right before `place`."""
        agreed = 0
        for token in reversed(self._recent):
            if agreed == place or self._tokens[place - 1 - agreed] != token:
                break
            agreed += 1
        return agreed


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A span that could be proposed, with what speaks for each of its tokens."""

    origin: Origin
    tokens: Sequence[int]
    lengths: Sequence[int]
    """Tokens before this one that agreed with the source."""
    shares: Sequence[float]
    """How agreed the sources are: the part of them that goes on with this token."""


class AnswerProposer:
    """Speculates on one branch from its aligned draft and the suffix cache.

    Used for the answer (draft: the newest partial-CoT draft) and for a refreshed draft (draft: the
    earlier one). It appends what the branch writes to the cache, as a document of its own.

    Args:
        cache: shared with all branches; None for the prefix policy, where nothing is proposed after
            the draft's first mismatch.
        context: tokens that precede the branch (the end of them is enough).
        draft: aligned draft; empty for the lookup policy.
        reliability: what is known about acceptance so far; shared and updated.
    """

    def __init__(
        self,
        cache: SuffixCache | None,
        context: Sequence[int] = (),
        draft: Sequence[int] = (),
        settings: ProposerSettings | None = None,
        reliability: Reliability | None = None,
    ) -> None:
        self._settings = settings or ProposerSettings()
        self._reliability = reliability or Reliability()
        self._draft = AlignedDraft(list(draft), realign=cache is not None)
        self._cursor = cache.cursor(context) if cache is not None else None
        self._document = cache.document() if cache is not None else None
        self._spans: list[_Evidence] = []

    def propose(self, max_tokens: int) -> Proposal:
        limit = max(0, min(max_tokens, self._settings.max_tokens))
        self._spans = [*self._draft_spans(limit), *self._cache_spans(limit)]
        proposals = map(self._cut, self._spans)
        best = max(proposals, key=lambda it: it.expected_accepted, default=Proposal.empty())
        return best if best.tokens else Proposal.empty()

    def advance(self, tokens: Sequence[int]) -> None:
        self._learn(tokens)
        for token in tokens:
            self._draft.advance(token)
            if self._cursor is not None and self._document is not None:
                self._document.append(token)
                self._cursor.advance(token)

    def _draft_spans(self, limit: int) -> Iterator[_Evidence]:
        tokens = self._draft.ahead(limit)
        if tokens:
            lengths = range(self._draft.agreed, self._draft.agreed + len(tokens))
            yield _Evidence(Origin.DRAFT, tokens, lengths, [1.0] * len(tokens))

    def _cache_spans(self, limit: int) -> Iterator[_Evidence]:
        span = self._cursor.propose(limit) if self._cursor is not None else None
        if span is not None and span.tokens:
            shares = [count / total for count, total in zip(span.counts, span.totals, strict=True)]
            yield _Evidence(Origin.SUFFIX, span.tokens, span.match_lengths, shares)

    def _cut(self, span: _Evidence) -> Proposal:
        """The part of a span that is likely enough to be right as a whole."""
        chances: list[float] = []
        whole = 1.0
        for length, share in zip(span.lengths, span.shares, strict=True):
            chance = self._reliability.estimate(span.origin, length) * share
            whole *= chance
            if whole < self._settings.min_probability:
                break
            chances.append(chance)
        match_length = span.lengths[0] if span.origin is Origin.SUFFIX else 0
        return Proposal(list(span.tokens[: len(chances)]), span.origin, match_length, chances)

    def _learn(self, tokens: Sequence[int]) -> None:
        """Compare the last spans with what was written, each up to its first wrong token.

        This needs no verified row: what was cut off, passed over, or not verified by the engine is
        judged by the written tokens too. So a source that fell silent is heard again when it
        improves.
        """
        for span in self._spans:
            judged = zip(span.tokens, span.lengths, tokens, strict=False)
            for proposed, length, token in judged:
                self._reliability.record(span.origin, length, proposed == token)
                if proposed != token:
                    break
        self._spans = []
