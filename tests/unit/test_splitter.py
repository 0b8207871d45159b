"""Reasoning and answer: one definition on whole texts, and streams that must agree with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssr_local.chat.splitter import Piece, ThinkingSplitter

fragments = st.sampled_from(
    ["<think>", "</think>", "<thi", "</t", "<", "\n", "\n\n", " ", "a", "b c", "🦙", "\r\n"]
)
texts = st.lists(fragments, max_size=10).map("".join)


def split(parts: list[str], *, opened: bool, open: str = "<think>") -> tuple[str, str]:
    """Joined reasoning and answer of a streamed text."""
    splitter = ThinkingSplitter(open, "</think>", opened)
    pieces = [piece for part in parts for piece in splitter.feed(part)] + splitter.flush()
    reasoning, answer = (
        "".join(p.text for p in pieces if p.kind == kind) for kind in ("reasoning", "answer")
    )
    return reasoning, answer


def reference(text: str, opened: bool) -> tuple[str, str]:
    """What the splitter's docstring says, on a whole text."""
    body = text.lstrip()
    if body.startswith("<think>"):
        text = body.removeprefix("<think>")
    elif not opened:
        return "", text
    reasoning, _, answer = text.partition("</think>")
    return reasoning.rstrip().lstrip("\r\n"), answer.lstrip("\r\n")


@given(texts, st.booleans(), st.data())
def test_any_chunking_is_split_like_the_whole(text: str, opened: bool, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(parts, opened=opened) == reference(text, opened)


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        pytest.param("<think>\nhm\n</think>\n\nyes", "hm", "yes", id="as trained"),
        pytest.param("\n<think>hm</think>yes", "hm", "yes", id="a line break before the opening"),
        pytest.param("<think>\n\n</think>\n\nyes", "", "yes", id="empty thinking"),
        pytest.param("<think></think>yes", "", "yes", id="nothing between the markers"),
        pytest.param("<think>\nhm, so", "hm, so", "", id="never closed"),
        pytest.param("<think>hm\n</thi", "hm\n</thi", "", id="ends inside the close"),
        pytest.param("<think>a </thin b</think>c", "a </thin b", "c", id="almost a close"),
        pytest.param("<think>a</think>    code", "a", "    code", id="an indented answer"),
        pytest.param("<think>  a\n  b</think>", "  a\n  b", "", id="indented reasoning"),
        pytest.param(
            "<think>a</think>b <think>c</think> d",
            "a",
            "b <think>c</think> d",
            id="markers in the answer are text",
        ),
        pytest.param(
            "<think>a</think></think>b", "a", "</think>b", id="a second close is answer text"
        ),
    ],
)
def test_defined_outcomes(text: str, reasoning: str, answer: str, opened: bool) -> None:
    assert split([text], opened=opened) == (reasoning, answer)
    assert split(list(text), opened=opened) == (reasoning, answer)


@pytest.mark.parametrize(
    "text", ["yes", "  yes\n", "<thing>", "\n<thin", "a<think>b</think>c", " "]
)
def test_a_model_that_does_not_think_only_answers(text: str) -> None:
    assert split(list(text), opened=False) == ("", text)


def test_thinking_opened_by_the_prompt() -> None:
    assert split(["hm\n", "</think>", "\n\n", "yes"], opened=True) == ("hm", "yes")
    assert split(["</think>yes"], opened=True) == ("", "yes")


def test_without_markers_all_is_answer() -> None:
    splitter = ThinkingSplitter("", "", opened=False)
    assert splitter.feed("\n a</think>") == [Piece("answer", "\n a</think>")]
    assert not splitter.in_thinking
    assert not splitter.closed


def test_without_a_close_all_is_reasoning() -> None:
    splitter = ThinkingSplitter("", "", opened=True)
    assert splitter.feed("\nfirst, </think>") == [Piece("reasoning", "first, </think>")]
    assert splitter.in_thinking


def test_the_state_turns_at_the_text_that_completes_a_marker() -> None:
    splitter = ThinkingSplitter("<think>", "</think>", opened=False)
    states = []
    for text in ("<thi", "nk>", "hm", "</thin", "k>\n", "yes"):
        splitter.feed(text)
        states.append((splitter.in_thinking, splitter.closed))
    assert states == [(False, False), *[(True, False)] * 3, *[(False, True)] * 2]


def test_one_text_may_end_the_reasoning_and_begin_the_answer() -> None:
    splitter = ThinkingSplitter("<think>", "</think>", opened=True)
    assert splitter.feed("so</think>\n\nyes") == [Piece("reasoning", "so"), Piece("answer", "yes")]


def test_text_that_can_not_become_a_marker_is_not_held_back() -> None:
    splitter = ThinkingSplitter("<think>", "</think>", opened=True)
    assert splitter.feed("hm") == [Piece("reasoning", "hm")]
    assert splitter.feed(" </") == []
    assert splitter.feed("b>") == [Piece("reasoning", " </b>")]
    assert splitter.feed("<") == []
    assert splitter.flush() == [Piece("reasoning", "<")]


def test_text_that_can_not_become_the_opening_is_not_held_back() -> None:
    splitter = ThinkingSplitter("<think>", "</think>", opened=False)
    assert splitter.feed("\n<th") == []
    assert splitter.feed("e") == [Piece("answer", "\n<the")]
    assert splitter.feed("<") == [Piece("answer", "<")]
