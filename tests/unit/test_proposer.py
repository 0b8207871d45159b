"""What the proposer proposes, and what it learns from what was written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssr_local.decoding.proposer import (
    MEMORY,
    START_LENGTH,
    AlignedDraft,
    AnswerProposer,
    Proposal,
    ProposerSettings,
    Reliability,
)
from ssr_local.decoding.suffix_cache import SuffixCache
from ssr_local.events import Origin

DRAFT = list(range(100, 160))
tokens = st.lists(st.integers(0, 3), max_size=30)


def cache_of(*documents: Sequence[int]) -> SuffixCache:
    cache = SuffixCache()
    for text in documents:
        cache.document().extend(text)
    return cache


def test_the_draft_is_proposed_from_its_first_token() -> None:
    proposal = AnswerProposer(None, draft=DRAFT).propose(5)
    assert (proposal.tokens, proposal.origin) == (DRAFT[:5], Origin.DRAFT)


def test_the_draft_goes_on_where_the_answer_agreed_with_it() -> None:
    proposer = AnswerProposer(None, draft=DRAFT)
    proposer.propose(4)
    proposer.advance(DRAFT[:5])
    assert proposer.propose(3).tokens == DRAFT[5:8]


def test_the_prefix_policy_is_silent_for_good_after_the_first_mismatch() -> None:
    proposer = AnswerProposer(None, draft=DRAFT)
    proposer.advance([100, 101, 7])
    assert proposer.propose(8) == Proposal.empty()
    proposer.advance(DRAFT[3:10])
    assert proposer.propose(8).tokens == []


def test_without_cache_and_draft_nothing_is_proposed() -> None:
    proposer = AnswerProposer(None)
    proposer.advance([1, 2, 1, 2])
    assert proposer.propose(8) == Proposal.empty()


def test_a_finished_draft_proposes_nothing() -> None:
    proposer = AnswerProposer(None, draft=[1, 2])
    proposer.advance([1, 2])
    assert proposer.propose(8).tokens == []


@pytest.mark.parametrize("limit", [0, -1])
def test_no_room_means_no_proposal(limit: int) -> None:
    proposer = AnswerProposer(cache_of([1, 2, 3]), context=[1], draft=DRAFT)
    assert proposer.propose(limit) == Proposal.empty()


def test_the_lookup_policy_finds_the_context_again() -> None:
    proposal = AnswerProposer(cache_of([1, 2, 3, 4, 5]), context=[9, 1, 2, 3]).propose(8)
    assert (proposal.tokens, proposal.origin) == ([4, 5], Origin.SUFFIX)
    assert proposal.match_length == 3


def test_what_was_written_can_be_found_again() -> None:
    proposer = AnswerProposer(cache_of())
    proposer.advance([1, 2, 3, 4, 5, 1, 2, 3])
    assert proposer.propose(2).tokens == [4, 5]


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ([*DRAFT[:10], 7, *DRAFT[11:13]], 13),
        ([*DRAFT[:10], 7, 8, *DRAFT[10:12]], 12),
        ([*DRAFT[:10], *DRAFT[14:16]], 16),
        ([*DRAFT[:10], 7, 8, 9, *DRAFT[15:17]], 17),
    ],
    ids=["substituted", "inserted", "deleted", "replaced by fewer"],
)
def test_the_draft_is_found_again_after_an_edit(written: list[int], place: int) -> None:
    proposer = AnswerProposer(cache_of(), draft=DRAFT)
    proposer.advance(written)
    proposal = proposer.propose(4)
    assert (proposal.tokens, proposal.origin) == (DRAFT[place : place + 4], Origin.DRAFT)


@pytest.mark.parametrize(
    ("inserted", "following"), [(1, 10), (6, 20)], ids=["before is nearer", "behind is nearer"]
)
def test_of_equal_places_in_the_draft_the_nearest_is_taken(inserted: int, following: int) -> None:
    """The token 5 stands twice in the draft; the answer reaches it after some tokens of its own."""
    draft = AlignedDraft([1, 5, 10, 2, 3, 4, 6, 7, 5, 20])
    for token in [1, *[9] * inserted, 5]:
        draft.advance(token)
    assert draft.ahead(1) == [following]


def test_a_draft_that_lost_the_answer_is_silent() -> None:
    draft = AlignedDraft(DRAFT)
    draft.advance(7)
    assert draft.ahead(4) == []


def test_a_long_match_is_followed_farther_than_a_short_one() -> None:
    text = list(range(1, 60))
    settings = ProposerSettings(min_probability=0.3)
    far = AnswerProposer(cache_of(text), text[:20], settings=settings).propose(32)
    near = AnswerProposer(cache_of(text), text[19:20], settings=settings).propose(32)
    assert len(far.tokens) > len(near.tokens) > 0


def test_a_contested_continuation_is_less_likely_than_an_undisputed_one() -> None:
    contested = AnswerProposer(cache_of([1, 2, 3], [1, 2, 4]), [1, 2]).propose(1)
    undisputed = AnswerProposer(cache_of([1, 2, 3], [1, 2, 3]), [1, 2]).propose(1)
    assert contested.probabilities[0] < undisputed.probabilities[0]


def test_rejections_shorten_spans_and_acceptance_lengthens_them() -> None:
    settings = ProposerSettings(min_probability=0.3)

    def span_after(right: bool) -> int:
        reliability = Reliability()
        for _ in range(100):
            for length in (8, 16, 32):
                reliability.record(Origin.DRAFT, length, right)
        proposer = AnswerProposer(None, (), DRAFT, settings, reliability)
        return len(proposer.propose(32).tokens)

    unlearnt = len(AnswerProposer(None, (), DRAFT, settings).propose(32).tokens)
    assert span_after(False) < unlearnt < span_after(True)


def test_a_source_that_fell_silent_speaks_again_when_it_would_have_been_right() -> None:
    """Learning only from verified rows would keep it silent for ever."""
    reliability = Reliability()
    for _ in range(MEMORY):
        reliability.record(Origin.SUFFIX, 1, False)
    proposer = AnswerProposer(cache_of([1, 2]), [1], reliability=reliability)
    assert proposer.propose(4).tokens == []
    for _ in range(MEMORY):
        fresh = AnswerProposer(cache_of([1, 2]), [1], reliability=reliability)
        fresh.propose(4)
        fresh.advance([2])
    assert proposer.propose(4).tokens == [2]


def test_only_tokens_up_to_the_first_wrong_one_are_evidence() -> None:
    """What stands behind a wrong token was written after something else."""
    learnt, one_failure = Reliability(), Reliability()
    one_failure.record(Origin.DRAFT, START_LENGTH, False)
    proposer = AnswerProposer(None, (), DRAFT, reliability=learnt)
    proposer.propose(8)
    proposer.advance([7, 101, 102])
    for length in (START_LENGTH, START_LENGTH + 1):
        expected = one_failure.estimate(Origin.DRAFT, length)
        assert learnt.estimate(Origin.DRAFT, length) == expected


def test_newer_experience_outweighs_older() -> None:
    reliability = Reliability()
    for right in (True, False):
        for _ in range((10 if right else 2) * MEMORY):
            reliability.record(Origin.SUFFIX, 4, right)
    assert reliability.estimate(Origin.SUFFIX, 4) < 0.5


@given(st.integers(0, 200))
def test_an_unlearnt_estimate_is_a_probability_that_grows_with_agreement(length: int) -> None:
    shorter, longer = (Reliability().estimate(Origin.SUFFIX, n) for n in (length, length + 1))
    assert 0 < shorter < longer < 1


def test_a_proposal_can_be_cut() -> None:
    proposal = Proposal([1, 2, 3], Origin.DRAFT, 0, [0.5, 0.5, 0.5])
    assert proposal.first(2) == Proposal([1, 2], Origin.DRAFT, 0, [0.5, 0.5])
    assert proposal.expected_accepted == pytest.approx(0.5 + 0.25 + 0.125)


@given(tokens, tokens, tokens, tokens, st.integers(0, 9))
def test_every_proposal_keeps_its_promises(
    text: list[int], context: list[int], draft: list[int], answer: list[int], limit: int
) -> None:
    """Within the limit, one probability a token, and the whole span likely enough."""
    settings = ProposerSettings(min_probability=0.2, max_tokens=6)
    proposer = AnswerProposer(cache_of(text), context, draft, settings)
    for start in range(0, len(answer), 3):
        proposal = proposer.propose(limit)
        assert len(proposal.tokens) == len(proposal.probabilities) <= min(limit, 6)
        assert all(0 < chance < 1 for chance in proposal.probabilities)
        assert (proposal.origin is Origin.MODEL) == (not proposal.tokens)
        whole = 1.0
        for chance in proposal.probabilities:
            whole *= chance
        assert whole >= 0.2
        proposer.advance(answer[start : start + 3])


@given(tokens, tokens)
def test_a_draft_equal_to_the_answer_is_never_wrong(draft: list[int], text: list[int]) -> None:
    proposer = AnswerProposer(None, text, draft)
    written = 0
    while written < len(draft):
        proposal = proposer.propose(8)
        assert proposal.tokens == draft[written : written + len(proposal.tokens)] != []
        proposer.advance(proposal.tokens)
        written += len(proposal.tokens)
