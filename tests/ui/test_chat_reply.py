"""From events to what the page is told: the reply's state, its view, its figures."""

from __future__ import annotations

import pytest
from ssr_chat.conversation import Conversation, Exchange
from ssr_chat.figures import duration, figures, origin_bar, phase_bar
from ssr_chat.reply import Phase, Reply
from ssr_chat.view import exchange_view, notice_html, with_code

from ssr_local.errors import ContextOverflow, InvalidRequest
from ssr_local.events import (
    AnswerDelta,
    DraftDelta,
    DraftFinished,
    DraftStarted,
    Event,
    Failed,
    Origin,
    PromptProgress,
    ReasoningDelta,
    ThinkingEnded,
)
from ui.scripted_engine import NOWHERE, finished


def at(time: float) -> dict[str, object]:
    return {"request_id": "", "time": time}


def thought(text: str, time: float) -> ReasoningDelta:
    return ReasoningDelta(**at(time), text=text, tokens=2)


def drafted(text: str, number: int = 0) -> DraftDelta:
    return DraftDelta(**NOWHERE, draft=number, text=text, tokens=1)


def started(number: int, checkpoint: int = 8) -> DraftStarted:
    return DraftStarted(**NOWHERE, draft=number, checkpoint=checkpoint)


def answered(text: str, origin: Origin, time: float = 3.0, tokens: int = 1) -> AnswerDelta:
    return AnswerDelta(**at(time), text=text, origin=origin, tokens=tokens)


def reply_after(*events: Event) -> Reply:
    reply = Reply()
    for event in events:
        reply.apply(event)
    return reply


def test_phases_follow_the_events() -> None:
    reply, seen = Reply(), []
    for event in (
        PromptProgress(**NOWHERE, processed=3, total=3, reused=0),
        thought("hm", 1.0),
        ThinkingEnded(**at(2.0), tokens=2, reason="closed"),
        answered("yes", Origin.MODEL),
        finished(answer=1, steps=1),
    ):
        reply.apply(event)
        seen.append(reply.phase)
    assert seen == [Phase.READING, Phase.THINKING, Phase.THINKING, Phase.ANSWERING, Phase.DONE]


def test_thinking_is_timed_from_its_first_word_to_its_end() -> None:
    reply = reply_after(
        PromptProgress(**at(1.0), processed=1, total=1, reused=0),
        thought("a", 1.5),
        thought("b", 2.5),
        ThinkingEnded(**at(4.0), tokens=9, reason="budget"),
        answered("x", Origin.MODEL, time=7.0),
    )
    view = exchange_view(Exchange("1", "q", reply))["thought"]
    assert view["title"] == "Thought for 2.5 s"
    assert view["detail"] == "9 tokens, budget spent"
    assert not view["live"]


def test_a_new_draft_keeps_the_rest_of_the_old_one_as_stale() -> None:
    """The ghost does not collapse at every refresh."""
    reply = reply_after(
        thought("a", 1.0), started(0), drafted("one two"), started(1), drafted("O", 1)
    )
    assert reply.draft
    html = "".join(reply.draft.shown().blocks())
    assert html == '<p>O<span class="by-stale">ne two</span></p>\n'


def test_a_complete_draft_shows_nothing_stale() -> None:
    reply = reply_after(
        started(0),
        drafted("one two"),
        started(1),
        drafted("one", 1),
        DraftFinished(**NOWHERE, draft=1, tokens=1, end="complete"),
    )
    assert reply.draft
    assert reply.draft.shown().text == "one"


def test_events_of_a_replaced_draft_are_ignored() -> None:
    reply = reply_after(started(0), started(1), drafted("late", 0))
    assert reply.draft
    assert reply.draft.text == ""


def test_the_ghost_gives_way_to_the_answer() -> None:
    reply = reply_after(thought("a", 1.0), started(0), drafted("one"))
    assert exchange_view(Exchange("1", "q", reply))["ghost"]["detail"] == "as of 8 thinking tokens"
    reply.apply(answered("one", Origin.DRAFT))
    assert exchange_view(Exchange("1", "q", reply))["ghost"] is None


def test_the_bar_shares_the_answer_among_origins() -> None:
    reply = reply_after(
        answered("a", Origin.DRAFT, tokens=6),
        answered("b", Origin.SUFFIX, tokens=3),
        answered("c", Origin.MODEL),
    )
    assert [(part.kind, part.label) for part in origin_bar(reply)] == [
        ("draft", "draft 60%"),
        ("suffix", "suffix 30%"),
        ("model", "model 10%"),
    ]


def test_final_figures_are_the_engines() -> None:
    reply = reply_after(answered("x", Origin.MODEL), finished(reasoning=40, answer=20, steps=5))
    shown = {figure.name: figure.value for figure in figures(reply)}
    assert shown["tokens/step"] == "4.0"
    assert shown["accepted"] == "75%"
    assert shown["tokens"] == "60"
    assert shown["sooner than plain (est.)"] == "2.7 s"
    assert [part.label for part in phase_bar(reply)] == [
        "read 0.4 s",
        "thought 6.2 s",
        "answered 1.9 s",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (12.3, "12 s"), (125.0, "2 min 5 s"), (59.7, "60 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_stop_and_a_limit_are_told() -> None:
    assert "Stopped" in notice_html(reply_after(finished(finish_reason="cancelled")))
    assert "limit" in notice_html(reply_after(finished(finish_reason="length")))


def test_a_failure_keeps_what_was_written_and_names_the_cause() -> None:
    reply = reply_after(
        answered("half", Origin.MODEL), Failed(**NOWHERE, error=ContextOverflow(9, 8))
    )
    assert reply.phase is Phase.FAILED
    assert reply.answer.text == "half"
    assert "The prompt has 9 tokens" in notice_html(reply)
    assert "back in the box" not in notice_html(reply)


def test_an_error_can_not_inject_html() -> None:
    reply = Reply()
    reply.refuse(InvalidRequest("<img src=x> and `<b>`"))
    assert "&lt;img src=x&gt; and <code>&lt;b&gt;</code>" in notice_html(reply)
    assert "back in the box" in notice_html(reply)


def test_a_lone_backtick_is_text() -> None:
    assert with_code("it`s <1>") == "it`s &lt;1&gt;"


def test_only_answered_turns_are_told_to_the_model() -> None:
    conversation = Conversation()
    conversation.begin("first").reply.refuse(InvalidRequest("no"))
    second = conversation.begin("second").reply
    second.apply(thought("hm", 1.0))
    second.apply(answered("yes", Origin.MODEL))
    conversation.begin("third")
    assert [(m.role, m.content, m.reasoning) for m in conversation.messages()] == [
        ("user", "second", None),
        ("assistant", "yes", "hm"),
        ("user", "third", None),
    ]
