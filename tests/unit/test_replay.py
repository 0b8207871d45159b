"""Replay of recorded traces: its figures, and what it says about files that are not traces."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ssr_local.bench.replay import ReplayReport, Tally, print_report, run_replay
from ssr_local.errors import InvalidRequest
from ssr_local.events import Origin
from ssr_local.request import Policy

SHARED_TRACES = Path(__file__).parents[3] / "shared" / "traces"


def trace(**changes: Any) -> dict[str, Any]:
    """A draft that differs from the answer in its fifth token of twenty."""
    answer = list(range(100, 120))
    draft = [*answer[:4], 7, *answer[5:]]
    fields = {
        "name": "one edit",
        "prompt": [1, 2, 3],
        "cot": [4, 5, 6, 4, 5, 6, 4, 5, 6, 4],
        "close": [9],
        "answer": answer,
        "drafts": [{"cot_tokens": 2, "tokens": draft}],
    }
    return fields | changes


def written(folder: Path, *traces: dict[str, Any]) -> Path:
    path = folder / "traces.jsonl"
    path.write_text("\n".join(map(json.dumps, traces)) + "\n", encoding="utf-8")
    return path


def tallies(path: Path, limit_drafts: bool = False) -> dict[Policy, Tally]:
    return run_replay(path, limit_drafts=limit_drafts).overall


def test_plain_decoding_has_one_step_and_one_row_for_each_token(tmp_path: Path) -> None:
    plain = tallies(written(tmp_path, trace()))[Policy.PLAIN]
    assert (plain.steps, plain.tokens_per_step, plain.rows_per_token) == (20, 1.0, 1.0)
    assert plain.proposed_per_token == 0.0


def test_prefix_takes_what_agrees_and_then_decodes_plainly(tmp_path: Path) -> None:
    """One step for four accepted tokens and the model's correction, fifteen for the rest."""
    prefix = tallies(written(tmp_path, trace()))[Policy.PREFIX]
    assert (prefix.steps, prefix.accepted[Origin.DRAFT]) == (16, 4)


def test_ssr_goes_on_with_the_draft_after_the_edit(tmp_path: Path) -> None:
    """A step up to the edit, a plain one past it, then the rest of the draft."""
    ssr = tallies(written(tmp_path, trace()))[Policy.SSR]
    assert ssr.steps <= 4
    assert ssr.accepted[Origin.DRAFT] + ssr.accepted[Origin.SUFFIX] >= 17


def test_lookup_uses_no_draft(tmp_path: Path) -> None:
    lookup = tallies(written(tmp_path, trace()))[Policy.LOOKUP]
    assert (lookup.steps, lookup.proposed[Origin.DRAFT]) == (20, 0)


def test_every_mode_writes_the_whole_answer(tmp_path: Path) -> None:
    assert {tally.tokens for tally in tallies(written(tmp_path, trace())).values()} == {20}


def test_rows_are_the_proposed_tokens_and_the_pending_one_of_each_step(tmp_path: Path) -> None:
    ssr = tallies(written(tmp_path, trace()))[Policy.SSR]
    assert ssr.rows_per_token * 20 == pytest.approx(sum(ssr.proposed.values()) + ssr.steps)


def test_a_live_draft_is_as_long_as_the_thinking_that_is_left(tmp_path: Path) -> None:
    """Seven of ten CoT tokens are gone at the checkpoint: three draft tokens can be accepted."""
    late = {"cot_tokens": 7, "tokens": list(range(100, 120))}
    path = written(tmp_path, trace(drafts=[late]))
    assert tallies(path)[Policy.PREFIX].accepted[Origin.DRAFT] > 10
    assert tallies(path, limit_drafts=True)[Policy.PREFIX].accepted[Origin.DRAFT] == 3


def test_a_refresh_gets_farther_than_a_first_draft_of_equal_time(tmp_path: Path) -> None:
    """The earlier draft's four tokens are accepted in one step, so the later one gets past four."""
    answer = list(range(100, 120))
    drafts = [{"cot_tokens": at, "tokens": answer} for at in (2, 6)]
    path = written(tmp_path, trace(drafts=drafts))
    assert tallies(path, limit_drafts=True)[Policy.PREFIX].accepted[Origin.DRAFT] > 4


def test_a_draft_after_the_end_of_thinking_has_no_time(tmp_path: Path) -> None:
    path = written(tmp_path, trace(drafts=[{"cot_tokens": 99, "tokens": [100, 101]}]))
    assert tallies(path, limit_drafts=True)[Policy.PREFIX].steps == 20


def test_traces_do_not_learn_from_each_other(tmp_path: Path) -> None:
    alone = run_replay(written(tmp_path, trace())).traces["one edit"]
    both = run_replay(written(tmp_path, trace(name="first"), trace())).traces["one edit"]
    assert both == alone


def test_a_trace_without_drafts_is_fine(tmp_path: Path) -> None:
    assert tallies(written(tmp_path, trace(drafts=[])))[Policy.PREFIX].steps == 20


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: .*dictionary"),
        (json.dumps(trace(answer=[])), "line 2: answer: "),
        (json.dumps(trace(answer=["a"])), r"line 2: answer\.0: "),
        (json.dumps(trace(cot=[-1])), r"line 2: cot\.0: "),
        (json.dumps(trace(drafts=[{"tokens": []}])), r"line 2: drafts\.0\.cot_tokens: "),
        (json.dumps({"name": "x"}), "line 2: prompt: Field required"),
        (json.dumps(trace(name="first")), "line 2: name 'first' is not new"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(json.dumps(trace(name="first")) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(InvalidRequest, match=complaint):
        run_replay(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe"])
def test_a_file_without_traces_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"empty\.jsonl"):
        run_replay(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"none\.jsonl"):
        run_replay(tmp_path / "none.jsonl")


def test_the_report_goes_through_json_and_to_a_terminal(tmp_path: Path) -> None:
    report = run_replay(written(tmp_path, trace()))
    sent = json.loads(json.dumps(report.to_json_dict()))
    assert sent["policies"]["plain"]["tokens_per_step"] == 1.0
    assert sent["tokens_per_step"] == sent["policies"]["ssr"]["tokens_per_step"]
    one = sent["traces"]["one edit"]
    assert one["rows_per_token"] == one["policies"]["ssr"]["rows_per_token"]
    assert one["policies"]["ssr"]["accepted"].keys() == {"draft", "suffix"}
    shown = io.StringIO()
    print_report(report, Console(file=shown, width=120))
    assert "one edit" in shown.getvalue()


@pytest.fixture(scope="module")
def recorded() -> Path:
    folder = Path(os.environ.get("SSR_TRACES", SHARED_TRACES))
    path = folder / "qwen2.5-coder-1.5b.jsonl"
    if not path.is_file():
        pytest.skip("no recorded traces: set SSR_TRACES to their folder")
    return path


@pytest.fixture(scope="module")
def report(recorded: Path) -> ReplayReport:
    return run_replay(recorded)


def test_on_recorded_traces_ssr_gains_four_tokens_a_step(report: ReplayReport) -> None:
    """The traces' own reference simulation has 3.54 tokens a step at 3.0 rows a token."""
    ssr = report.overall[Policy.SSR]
    assert ssr.tokens_per_step >= 4.0
    assert ssr.rows_per_token <= 3.0


def test_on_recorded_traces_drafts_are_worth_more_than_twice_lookup(report: ReplayReport) -> None:
    modes = report.overall
    assert modes[Policy.SSR].tokens_per_step > 2 * modes[Policy.LOOKUP].tokens_per_step
    assert modes[Policy.LOOKUP].tokens_per_step > modes[Policy.PREFIX].tokens_per_step > 1.2


def test_on_recorded_traces_live_drafts_still_beat_lookup(recorded: Path) -> None:
    modes = run_replay(recorded, limit_drafts=True).overall
    assert modes[Policy.SSR].tokens_per_step > 1.4 * modes[Policy.LOOKUP].tokens_per_step


def test_replay_gives_the_same_figures_each_time(recorded: Path, report: ReplayReport) -> None:
    assert run_replay(recorded).to_json_dict() == report.to_json_dict()
