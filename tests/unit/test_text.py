"""Streams must not depend on how they are chunked, nor hold back more than they have to."""

from hypothesis import example, given
from hypothesis import strategies as st

from ssr_local.chat.text import Released, StopMatcher, Utf8Stream

letters = st.text("ab\n", max_size=30)
stop_lists = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=4)


def chunks(data: st.DataObject, whole: str | bytes) -> list[str | bytes]:
    """A random way to cut `whole`, empty chunks included."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@given(st.data(), st.text(max_size=20).map(str.encode) | st.binary(max_size=20))
def test_any_chunking_of_bytes_decodes_like_the_whole(data: st.DataObject, whole: bytes) -> None:
    stream = Utf8Stream()
    text = "".join(stream.feed(chunk) for chunk in chunks(data, whole)) + stream.flush()
    assert text == whole.decode("utf-8", "replace")


def test_a_character_is_released_with_its_last_byte() -> None:
    stream = Utf8Stream()
    assert [stream.feed(bytes([byte])) for byte in "🦙é".encode()] == ["", "", "", "🦙", "", "é"]
    assert stream.flush() == ""


def test_a_broken_character_becomes_a_replacement_at_the_end_and_is_forgotten() -> None:
    stream = Utf8Stream()
    assert stream.feed("é".encode()[:1]) == ""
    assert stream.flush() == "\ufffd"
    assert stream.feed(b"ok") == "ok"


def before_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """Reference: grow the text until it ends in a stop string."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


@given(st.data(), letters, stop_lists)
@example(data=None, text="abab", stops=["ab", "bab"])
@example(data=None, text="aab", stops=["ab"])
def test_any_chunking_is_cut_before_the_first_stop(
    data: st.DataObject | None, text: str, stops: list[str]
) -> None:
    parts = chunks(data, text) if data else list(text)
    matcher = StopMatcher(stops)
    released = [matcher.feed(part) for part in parts]
    joined = "".join(r.text for r in released) + matcher.flush()
    assert (joined, bool(released) and released[-1].stopped) == before_first_stop(text, stops)


@given(letters, stop_lists)
def test_only_what_may_become_a_stop_is_held_back(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    seen = ""
    for character in text:
        released = matcher.feed(character)
        seen += released.text
        if released.stopped:
            break
        held = matcher._held
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


def test_a_stop_in_the_middle_of_a_long_text_is_found() -> None:
    assert StopMatcher(["END"]).feed("answer END and much more") == Released("answer ", True)


def test_of_stops_completed_together_the_longest_counts() -> None:
    assert StopMatcher(["b", "ab"]).feed("xab") == Released("x", True)


def test_the_stop_completed_first_counts_even_inside_a_longer_one_begun_earlier() -> None:
    matcher = StopMatcher(["abcd", "bc"])
    assert matcher.feed("ab") == Released("", False)
    assert matcher.feed("cd") == Released("a", True)


def test_nothing_comes_after_a_stop() -> None:
    matcher = StopMatcher(["."])
    matcher.feed("a.b")
    assert matcher.feed("c.d") == Released("", True)
    assert matcher.flush() == ""


def test_without_stops_all_text_passes_at_once() -> None:
    matcher = StopMatcher([])
    assert matcher.feed("text") == Released("text", False)
