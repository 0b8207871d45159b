"""The suffix cache against a reference that compares every substring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssr_local.decoding import suffix_cache
from ssr_local.decoding.suffix_cache import WINDOW, Cursor, SuffixCache

Appended = tuple[int, int]
"""(document, token)"""

appends = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=48)
contexts = st.lists(st.integers(0, 2), max_size=8)


def fill(cache: SuffixCache, events: Sequence[Appended]) -> None:
    documents = [cache.document() for _ in range(3)]
    for document, token in events:
        documents[document].append(token)


def followers(events: Sequence[Appended], string: Sequence[int]) -> list[int]:
    """The tokens that followed `string` inside a document, in the order they were appended."""
    texts: dict[int, list[int]] = {0: [], 1: [], 2: []}
    found = []
    for document, token in events:
        text = texts[document]
        if len(text) >= len(string) and text[len(text) - len(string) :] == list(string):
            found.append(token)
        text.append(token)
    return found


def longest_match(events: Sequence[Appended], context: Sequence[int]) -> list[int]:
    """The longest suffix of `context` that something followed."""
    tail = list(context[-WINDOW:])
    while tail and not followers(events, tail):
        del tail[0]
    return tail


def counts(events: Sequence[Appended], context: Sequence[int]) -> dict[int, int]:
    match = longest_match(events, context)
    return dict(Counter(followers(events, match))) if match else {}


@given(appends, contexts)
def test_a_match_is_the_longest_suffix_with_a_continuation(
    events: list[Appended], context: list[int]
) -> None:
    cache = SuffixCache()
    fill(cache, events)
    cursor = cache.cursor(context)
    assert cursor.match_length == len(longest_match(events, context))
    assert cursor.continuations() == counts(events, context)


@given(appends, appends, contexts)
def test_a_cursor_stays_exact_while_documents_grow_under_it(
    before: list[Appended], after: list[Appended], context: list[int]
) -> None:
    cache = SuffixCache()
    cursor = cache.cursor()
    documents = [cache.document() for _ in range(3)]
    fed: list[int] = []
    events = [*before, *after][:48]
    for number, (document, token) in enumerate(events, start=1):
        documents[document].append(token)
        if number <= len(context):
            cursor.advance(context[number - 1])
            fed.append(context[number - 1])
        assert cursor.continuations() == counts(events[:number], fed)


@given(appends, contexts)
def test_a_walk_takes_the_most_frequent_continuation_and_of_equals_the_latest(
    events: list[Appended], context: list[int]
) -> None:
    cache = SuffixCache()
    fill(cache, events)
    span = cache.cursor(context).propose(1)
    following = followers(events, longest_match(events, context))
    if not longest_match(events, context):
        assert span.tokens == []
        return
    frequency = Counter(following)
    latest = {token: number for number, token in enumerate(following)}
    best = max(frequency, key=lambda token: (frequency[token], latest[token]))
    assert (span.tokens, span.counts, span.totals) == ([best], [frequency[best]], [len(following)])


@given(appends, contexts)
def test_each_token_of_a_walk_really_followed_the_tokens_before_it(
    events: list[Appended], context: list[int]
) -> None:
    cache = SuffixCache()
    fill(cache, events)
    span = cache.cursor(context).propose(20)
    written = list(context)
    for token, length, count, total in zip(
        span.tokens, span.match_lengths, span.counts, span.totals, strict=True
    ):
        following = followers(events, written[len(written) - length :])
        assert (count, total) == (following.count(token), len(following))
        written.append(token)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=60), contexts)
def test_counts_are_exact_up_to_the_count_depth_and_never_too_high(
    events: list[Appended], context: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix_cache, "COUNT_DEPTH", 3)
        cache = SuffixCache()
        fill(cache, events)
        found = cache.cursor(context).continuations()
    expected = counts(events, context)
    assert found.keys() == expected.keys()
    for token, count in expected.items():
        assert min(count, 3) <= found[token] <= count


@given(appends, contexts)
def test_two_generations_are_searched_and_older_ones_are_gone(
    events: list[Appended], context: list[int]
) -> None:
    """A generation holds ten tokens; going on in a new one is a document boundary."""
    cache = SuffixCache(max_tokens=20)
    cursor = cache.cursor(context)
    fill(cache, events)
    start = max(0, len(events) - 1) // 10 * 10
    new, old = events[start:], events[max(0, start - 10) : start]
    kept = max(new, old, key=lambda part: len(longest_match(part, context)))
    assert cursor.match_length == len(longest_match(kept, context))
    assert cursor.continuations() == counts(kept, context)
    assert cache.tokens <= 20


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 3])
def test_a_cache_smaller_than_a_match_finds_nothing_and_does_not_fail(max_tokens: int) -> None:
    cache = SuffixCache(max_tokens)
    cache.document().extend([1, 2, 1, 2])
    assert cache.cursor([1]).propose(4).tokens == []


def test_the_end_of_a_document_is_no_match_for_itself() -> None:
    cache = SuffixCache()
    cache.document().extend([1, 2, 3])
    assert cache.cursor([1, 2, 3]).match_length == 0


def test_an_answer_that_follows_itself_finds_its_earlier_occurrence() -> None:
    cache = SuffixCache()
    document, cursor = cache.document(), cache.cursor()
    for token in [7, 8, 9, 5, 7, 8]:
        document.append(token)
        cursor.advance(token)
    assert cursor.propose(2).tokens == [9, 5]
    assert cursor.match_length == 2


def test_no_match_reaches_across_documents() -> None:
    cache = SuffixCache()
    cache.document().extend([1, 2])
    cache.document().extend([3, 4])
    assert cache.cursor([2]).match_length == 0
    assert cache.cursor([1, 2, 3]).match_length == 1


def test_a_walk_goes_on_through_a_loop_beyond_the_end_of_the_text() -> None:
    cache = SuffixCache()
    cache.document().extend([1, 2, 3] * 3)
    assert cache.cursor([1, 2, 3] * 3).propose(10).tokens == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]


def test_an_empty_cache_and_an_empty_context_propose_nothing() -> None:
    cache = SuffixCache()
    assert cache.cursor([1]).propose(4).tokens == []
    cache.document().extend([1, 2])
    assert cache.cursor().propose(4).tokens == []
    assert cache.cursor([1]).propose(0).tokens == []


def test_a_match_longer_than_the_window_counts_as_the_window() -> None:
    cache = SuffixCache()
    text = list(range(2 * WINDOW))
    cache.document().extend(text)
    assert cache.cursor(text[:-1]).match_length == WINDOW


@pytest.mark.parametrize(
    "text",
    [[1] * 20_000, [1, 2] * 10_000, [*[1] * 5_000, 2] * 4, [*[1] * 500, 2, *[1] * 500, 3] * 20],
    ids=["aaaa", "abab", "runs", "runs with two ends"],
)
def test_degenerate_text_stays_linear_in_memory(text: list[int]) -> None:
    """An automaton has at most two states a token; a count that walked all suffixes would need
    minutes here, and the suite's timeout would end it."""
    cache = SuffixCache()
    cache.document().extend(text)
    assert len(cache._current.length) <= 2 * len(text) + 1
    assert cache.cursor(text[-10:]).propose(5).tokens != []


def test_a_document_left_alone_for_generations_can_be_continued() -> None:
    cache = SuffixCache(max_tokens=8)
    early = cache.document()
    early.extend([1, 2])
    cache.document().extend([9] * 20)
    early.extend([3, 4])
    cursor: Cursor = cache.cursor([3])
    assert cursor.propose(1).tokens == [4]
