"""The terminal view: only the answer on stdout, nothing that steers the terminal, fitting lines."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from ssr_local.errors import BackendError
from ssr_local.events import (
    AnswerDelta,
    DraftDelta,
    DraftFinished,
    DraftStarted,
    Event,
    Failed,
    Finished,
    FinishReason,
    Origin,
    PhaseSeconds,
    PromptProgress,
    ReasoningDelta,
    SpeculationStats,
    ThinkingEnded,
    Usage,
)
from ssr_local.generation import collect
from ssr_local.report import closing_line, completion_as_json, in_seconds, stats_table
from ssr_local.terminal import LineFolder, Status, TerminalView, fold, printable

AT = {"request_id": "r", "time": 0.0}
STATS = SpeculationStats(
    thinking_steps=6,
    rows_proposed=8,
    accepted_draft=3,
    accepted_suffix=2,
    from_model=2,
    acceptance_lengths=(4, 3),
    seconds=PhaseSeconds(queue=0.01, prefill=0.25, thinking=2.0, answer=1.25),
    estimated_plain_seconds=5.0,
)


def finished(reason: FinishReason = "stop", stats: SpeculationStats = STATS) -> Finished:
    usage = Usage(prompt_tokens=9, prompt_tokens_reused=4, reasoning_tokens=6, answer_tokens=7)
    return Finished(**AT, finish_reason=reason, usage=usage, stats=stats)


def a_request(thought: str = "let me see", answer: str = "forty-two") -> Iterator[Event]:
    yield PromptProgress(**AT, processed=9, total=9, reused=4)
    yield ReasoningDelta(**AT, text=thought, tokens=3)
    yield DraftStarted(**AT, draft=0, checkpoint=3)
    yield DraftDelta(**AT, draft=0, text="forty", tokens=1)
    yield DraftFinished(**AT, draft=0, tokens=1, end="thinking-ended")
    yield ThinkingEnded(**AT, tokens=3, reason="closed")
    yield AnswerDelta(**AT, text=answer[:4], origin=Origin.DRAFT, tokens=1)
    yield AnswerDelta(**AT, text=answer[4:], origin=Origin.MODEL, tokens=1)
    yield finished()


def show(events: Iterator[Event], *, terminal: bool) -> tuple[str, str]:
    out, err = (
        Console(file=StringIO(), force_terminal=terminal, width=40, color_system="truecolor")
        for _ in range(2)
    )
    with TerminalView(out, err, legend=True) as view:
        for event in events:
            view.show(event)
    return tuple(console.file.getvalue() for console in (out, err))


# In a pipe


def test_a_pipe_gets_the_answer_and_a_last_newline_only() -> None:
    out, err = show(a_request(), terminal=False)
    assert out == "forty-two\n"
    assert err.startswith("let me see\n")
    assert "tokens/step" in err


def test_a_pipe_gets_every_character_as_it_is() -> None:
    out, _ = show(a_request(answer="a\x1b[31m\r\nb\n"), terminal=False)
    assert out == "a\x1b[31m\r\nb\n"


# On a terminal


def test_origins_have_different_colours_and_a_legend() -> None:
    out, err = show(a_request(), terminal=True)
    assert "\x1b[32mfort\x1b[0m" in out
    assert out.endswith("y-two\n")
    assert "from the draft" in err


def test_thinking_is_dimmed_and_stays() -> None:
    _, err = show(a_request(thought="one line\nthe next"), terminal=True)
    assert "\x1b[2mone line\x1b[0m" in err
    assert "the next" in err


def test_nothing_a_model_writes_steers_the_terminal() -> None:
    hostile = "a\x1b]0;title\x07b\x9b2Jc\x1b[?1049hd\re"
    out, err = show(a_request(thought=hostile, answer=hostile), terminal=True)
    for shown in (out, err):
        assert "\x1b]0;" not in shown
        assert "\x9b" not in shown
        assert "\x1b[?1049h" not in shown
        assert "\x07" not in shown


def test_a_failed_request_leaves_the_terminal_as_it_was() -> None:
    events = [ReasoningDelta(**AT, text="so", tokens=1), Failed(**AT, error=BackendError("no"))]
    out, err = show(iter(events), terminal=True)
    assert out == ""
    assert err.count("\x1b[?25l") == err.count("\x1b[?25h")  # the cursor is shown again


# Parts


def test_the_status_tells_of_prompt_thinking_and_draft() -> None:
    status, said = Status(), []
    status.hear(PromptProgress(**AT, processed=5, total=9, reused=0))
    said.append(str(status))
    for event in list(a_request())[:4]:
        status.hear(event)
    said.append(str(status))
    assert said == [
        "reading… 5 of 9 tokens",
        "thinking… 3 tokens · drafting… 1 tokens",
    ]


@given(st.text(), st.integers(1, 30))
def test_folded_lines_fit_and_hold_everything_but_the_spaces_they_were_cut_at(
    text: str, width: int
) -> None:
    parts = fold(text, width)
    assert all(cell_len(part) <= max(width, 2) for part in parts)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")


@given(st.lists(st.text(alphabet="ab \n", max_size=20)))
def test_a_folder_holds_what_it_was_fed(chunks: list[str]) -> None:
    folder = LineFolder(12)
    lines = [line for chunk in chunks for line in folder.feed(chunk)]
    whole = "".join([*lines, folder.rest])
    assert whole.replace(" ", "") == "".join(chunks).replace("\n", "").replace(" ", "")


@given(st.text())
def test_printable_text_keeps_what_is_no_control_character(text: str) -> None:
    kept = printable(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in kept)
    assert [c for c in text if c.isprintable()] == [c for c in kept if c.isprintable()]


# Reports


def test_the_closing_line_gives_acceptance_and_time_by_phase() -> None:
    assert closing_line(finished()) == (
        "3.5 tokens/step · 3 draft + 2 suffix accepted of 8 · prefill 0.25 s · thinking 2.0 s · "
        "answer 1.2 s · without speculation about 5.0 s"
    )


def test_the_closing_line_says_why_an_answer_is_cut_off() -> None:
    assert closing_line(finished("length")).startswith("cut off: ")
    assert closing_line(finished("cancelled")).startswith("cancelled · ")


def test_plain_decoding_is_not_compared_with_itself() -> None:
    stats = SpeculationStats(acceptance_lengths=(1, 1), estimated_plain_seconds=2.0)
    assert closing_line(finished(stats=stats)) == "1.0 tokens/step"


def test_seconds_are_short() -> None:
    assert [in_seconds(s) for s in (0.0, 0.123, 1.25, 61.04)] == [
        "0.00 s",
        "0.12 s",
        "1.2 s",
        "61.0 s",
    ]


def test_json_holds_text_usage_and_derived_figures() -> None:
    found = completion_as_json(collect(list(a_request())))
    assert list(found) == ["answer", "reasoning", "finish_reason", "usage", "stats"]
    assert (found["answer"], found["reasoning"]) == ("forty-two", "let me see")
    assert found["usage"]["completion_tokens"] == 13
    assert found["stats"]["tokens_per_step"] == 3.5
    assert found["stats"]["answer_steps"] == 2
    assert found["stats"]["seconds"]["total"] == 3.51


def test_the_table_explains_every_figure() -> None:
    console = Console(file=StringIO(), width=120)
    console.print(stats_table(finished()))
    table = console.file.getvalue()
    assert "7 tokens in 2 steps: 3.50 tokens/step" in table
    assert "3 from the draft, 2 from suffix matches, 2 by the model alone" in table
    assert "8, 62% accepted" in table
