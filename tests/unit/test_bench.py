"""The benchmark: order of the runs, savings, differences, tables, JSON, and the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from support.tiny_gguf import tiny_model
from typer.testing import CliRunner

from ssr_local.bench.report import BenchReport, print_report
from ssr_local.bench.runner import Failure, Run, RunOptions, run_turns, turns, warm_up
from ssr_local.bench.summary import differences, figures, overall, saving
from ssr_local.bench.task import Kind, Task, choose_tasks, load_task, shipped_tasks
from ssr_local.cli_bench import bench, parse_policies
from ssr_local.errors import ContextOverflow, EngineClosed, InvalidRequest, SSRError
from ssr_local.events import PhaseSeconds, SpeculationStats, Usage
from ssr_local.generation import Completion
from ssr_local.request import Policy, Request

PLAIN, SSR = Policy.PLAIN, Policy.SSR


def a_task(name: str = "one", **changes: object) -> Task:
    fields = {"name": name, "kind": Kind.CODE, "prompt": f"Do {name}.", "max_tokens": 100}
    return Task.model_validate(fields | changes)


def completion(thinking: float = 1.0, answer: float = 1.0, text: str = "answer") -> Completion:
    stats = SpeculationStats(
        acceptance_lengths=(4, 1, 3, 2),
        rows_proposed=12,
        accepted_draft=3,
        accepted_suffix=3,
        from_model=4,
        seconds=PhaseSeconds(thinking=thinking, answer=answer),
    )
    usage = Usage(prompt_tokens=5, prompt_tokens_reused=0, reasoning_tokens=7, answer_tokens=10)
    return Completion(
        answer=text, reasoning="thought", finish_reason="stop", usage=usage, stats=stats
    )


class ScriptedEngine:
    """Answers from a queue, and writes down what was asked of it."""

    def __init__(self, *answers: Completion | SSRError) -> None:
        self.answers = list(answers)
        self.log: list[str] = []
        self.requests: list[Request] = []

    def generate(self, request: Request) -> Completion:
        self.log.append(request.policy)
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else completion()
        if isinstance(answer, SSRError):
            raise answer
        return answer

    def forget(self) -> None:
        self.log.append("forget")


def run_all(
    engine: ScriptedEngine,
    tasks: list[Task],
    policies: list[Policy],
    repetitions: int = 1,
    options: RunOptions | None = None,
) -> list[Run | Failure]:
    planned = turns(tasks, policies, repetitions)
    return list(run_turns(engine, planned, options or RunOptions()))


def runs_of(outcomes: list[Run | Failure]) -> list[Run]:
    return [outcome for outcome in outcomes if isinstance(outcome, Run)]


class TestRuns:
    def test_policies_take_turns_and_the_engine_forgets_before_each_run(self) -> None:
        engine = ScriptedEngine()
        run_all(engine, [a_task()], [PLAIN, SSR], repetitions=2)
        assert engine.log == ["forget", "plain", "forget", "ssr"] * 2

    def test_a_run_asks_for_the_tasks_own_limits_greedily(self) -> None:
        engine = ScriptedEngine()
        run_all(engine, [a_task(thinking_budget=30)], [SSR])
        (request,) = engine.requests
        assert request.max_tokens == 100
        assert request.thinking_budget == 30
        assert request.sampling.temperature == 0.0

    def test_options_replace_the_tasks_limits_also_with_zero(self) -> None:
        engine = ScriptedEngine()
        options = RunOptions(max_tokens=9, thinking_budget=0, temperature=0.5, seed=3)
        run_all(engine, [a_task(thinking_budget=30)], [SSR], options=options)
        (request,) = engine.requests
        assert (request.max_tokens, request.thinking_budget) == (9, 0)
        assert (request.sampling.temperature, request.sampling.seed) == (0.5, 3)

    def test_a_run_that_fails_is_told_and_the_next_one_is_made(self) -> None:
        engine = ScriptedEngine(ContextOverflow(900, 512), completion())
        failure, run = run_all(engine, [a_task()], [PLAIN, SSR])
        assert isinstance(failure, Failure)
        assert "900 tokens" in failure.message
        assert isinstance(run, Run)

    def test_a_closed_engine_ends_the_benchmark(self) -> None:
        engine = ScriptedEngine(EngineClosed("closed"))
        with pytest.raises(EngineClosed):
            run_all(engine, [a_task()], [PLAIN, SSR])

    def test_warming_up_runs_every_policy_briefly(self) -> None:
        engine = ScriptedEngine()
        warm_up(engine, [PLAIN, SSR], RunOptions())
        assert engine.log == ["forget", "plain", "forget", "ssr"]
        assert all((request.max_tokens or 999) < 50 for request in engine.requests)


class TestSummary:
    def test_medians_are_over_the_repetitions_of_a_task_and_policy(self) -> None:
        engine = ScriptedEngine(*(completion(answer=seconds) for seconds in (9.0, 1.0, 2.0)))
        (entry,) = figures(runs_of(run_all(engine, [a_task()], [SSR], repetitions=3)))
        assert entry.answer == 2.0
        assert entry.total == 3.0
        assert entry.total_range == (2.0, 10.0)
        assert entry.runs == 3
        assert entry.counts.tokens_per_step == 2.5
        assert entry.counts.proposed_per_token == pytest.approx(1.2)

    def test_the_two_averages_of_savings(self) -> None:
        """Task one: 10 s become 5 s (50 %). Task two: 1 s stays 1 s. Mean 25 %, sum 5 of 11 s."""
        engine = ScriptedEngine(
            completion(0, 10.0), completion(0, 5.0), completion(0, 1.0), completion(0, 1.0)
        )
        runs = runs_of(run_all(engine, [a_task("one"), a_task("two")], [PLAIN, SSR]))
        plain, ssr = overall(figures(runs), runs)
        assert plain.answer is not None
        assert plain.answer.mean_of_savings == 0.0
        assert ssr.answer is not None
        assert ssr.answer.mean_of_savings == pytest.approx(0.25)
        assert ssr.answer.saving_of_sums == pytest.approx(5 / 11)

    def test_total_counts_thinking_and_answer(self) -> None:
        engine = ScriptedEngine(completion(8.0, 2.0), completion(8.0, 1.0))
        runs = runs_of(run_all(engine, [a_task()], [PLAIN, SSR]))
        _, ssr = overall(figures(runs), runs)
        assert ssr.total is not None
        assert ssr.total.mean_of_savings == pytest.approx(0.1)

    def test_without_plain_there_are_no_savings(self) -> None:
        runs = runs_of(run_all(ScriptedEngine(), [a_task()], [SSR]))
        (ssr,) = overall(figures(runs), runs)
        assert ssr.answer is None

    def test_a_task_that_failed_under_plain_is_in_no_saving(self) -> None:
        engine = ScriptedEngine(
            ContextOverflow(9, 8), completion(0, 3.0), completion(0, 4.0), completion(0, 1.0)
        )
        runs = runs_of(run_all(engine, [a_task("one"), a_task("two")], [PLAIN, SSR]))
        ssr = next(entry for entry in overall(figures(runs), runs) if entry.policy is SSR)
        assert ssr.tasks == 2
        assert ssr.answer is not None
        assert ssr.answer.mean_of_savings == pytest.approx(0.75)

    def test_no_answer_phase_is_no_division_by_zero(self) -> None:
        assert saving(0.0, 1.0) is None


class TestDifferences:
    def test_equal_texts_are_no_difference(self) -> None:
        assert differences(runs_of(run_all(ScriptedEngine(), [a_task()], [PLAIN, SSR], 2))) == []

    def test_a_difference_is_found_with_its_place(self) -> None:
        engine = ScriptedEngine(completion(text="let x = 1;"), completion(text="let y = 1;"))
        (found,) = differences(runs_of(run_all(engine, [a_task()], [PLAIN, SSR])))
        assert (found.policy, found.where, found.offset) == (SSR, "answer", 4)
        assert found.expected.startswith("x = ")
        assert found.found.startswith("y = ")

    def test_one_text_being_the_others_beginning_is_a_difference(self) -> None:
        engine = ScriptedEngine(completion(text="abc"), completion(text="ab"))
        (found,) = differences(runs_of(run_all(engine, [a_task()], [PLAIN, SSR])))
        assert (found.offset, found.expected, found.found) == (2, "c", "")

    def test_tasks_are_compared_with_themselves_only(self) -> None:
        engine = ScriptedEngine(completion(text="a"), completion(text="b"))
        tasks = [a_task("one"), a_task("two")]
        assert differences(runs_of(run_all(engine, tasks, [PLAIN]))) == []


class TestReport:
    @staticmethod
    def shown(report: BenchReport) -> str:
        console = Console(file=io.StringIO(), width=140)
        print_report(report, console)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    def test_the_tables_show_savings_as_changes_of_time(self) -> None:
        engine = ScriptedEngine(completion(6.0, 4.0), completion(6.0, 1.0))
        outcomes = run_all(engine, [a_task("edit-file")], [PLAIN, SSR])
        text = self.shown(BenchReport.of(outcomes, planned=2))
        assert "edit-file" in text
        assert "-75.0 %" in text
        assert "-30.0 %" in text
        assert "30/30/40 %" in text
        assert "All policies wrote the same text." in text

    def test_what_went_wrong_is_shown_verbatim(self) -> None:
        """Square brackets in a model's text are no markup."""
        engine = ScriptedEngine(completion(text="x[bold]"), completion(text="y[/]"))
        text = self.shown(BenchReport.of(run_all(engine, [a_task()], [PLAIN, SSR]), planned=2))
        assert "'x[bold]' became 'y[/]'" in text

    def test_failures_and_missing_runs_are_shown(self) -> None:
        outcomes = run_all(ScriptedEngine(ContextOverflow(9, 8)), [a_task()], [PLAIN])
        text = self.shown(BenchReport.of(outcomes, planned=3))
        assert "failed one plain" in text
        assert "0 of 3 runs" in text

    def test_nothing_was_run_yet(self) -> None:
        assert "0 of 4 runs" in self.shown(BenchReport.of([], planned=4))

    def test_the_json_holds_every_run_and_survives_a_round_trip(self) -> None:
        outcomes = run_all(ScriptedEngine(), [a_task()], [PLAIN, SSR], repetitions=2)
        report = BenchReport.of(outcomes, planned=4)
        document = json.loads(json.dumps(report.as_json({"date": "today"}, RunOptions())))
        assert document["complete"] is True
        assert document["date"] == "today"
        assert [(r["policy"], r["repetition"]) for r in document["runs"]] == [
            ("plain", 0),
            ("ssr", 0),
            ("plain", 1),
            ("ssr", 1),
        ]
        run = document["runs"][0]
        assert run["answer"] == "answer"
        assert run["seconds"]["total"] == 2.0
        assert run["tokens_per_step"] == 2.5


class TestTasks:
    def test_the_shipped_tasks_are_sound_and_of_every_kind(self) -> None:
        tasks = shipped_tasks()
        assert len(tasks) >= 8
        assert {task.kind for task in tasks} == set(Kind)
        assert len({task.prompt for task in tasks}) == len(tasks)

    def test_names_are_those_of_the_files(self) -> None:
        root = Path(__file__).resolve().parents[2] / "benchmarks" / "tasks"
        assert [t.name for t in shipped_tasks()] == sorted(p.stem for p in root.glob("*.toml"))

    def test_thinking_leaves_room_for_an_answer(self) -> None:
        assert all((t.thinking_budget or 0) < t.max_tokens for t in shipped_tasks())

    def test_globs_choose_each_task_once(self) -> None:
        chosen = choose_tasks(["json*", "json-inventory", "qa-*"])
        assert [task.name for task in chosen] == ["json-inventory", "qa-tides", "qa-trains"]

    def test_an_unknown_name_is_an_error_that_lists_the_names(self) -> None:
        with pytest.raises(InvalidRequest, match=r"'jsno'.*json-inventory"):
            choose_tasks(["jsno"])

    def test_a_task_of_ones_own_is_named_by_its_path(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.toml"
        path.write_text('name = "mine"\nkind = "code"\nprompt = "Hi"\nmax_tokens = 5\n')
        assert [task.name for task in choose_tasks([str(path)])] == ["mine"]

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("name = ", "not valid TOML"),
            ('name = "x"\nkind = "code"\nprompt = "Hi"\nmax_tokns = 5\n', "max_tokns"),
            ('name = "x"\nkind = "poem"\nprompt = "Hi"\nmax_tokens = 5\n', "kind"),
            ('name = "x"\nkind = "code"\nprompt = "Hi"\nmax_tokens = 0\n', "max_tokens"),
        ],
    )
    def test_a_wrong_task_file_says_what_is_wrong(
        self, tmp_path: Path, text: str, told: str
    ) -> None:
        path = tmp_path / "wrong.toml"
        path.write_text(text)
        with pytest.raises(InvalidRequest, match=told):
            load_task(path)

    def test_a_missing_task_file_is_an_invalid_request(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequest, match="can't be read"):
            load_task(tmp_path / "none.toml")


class TestCommandLine:
    def test_policies_are_kept_in_order_and_once(self) -> None:
        assert parse_policies(["ssr", "plain", "ssr"]) == [SSR, PLAIN]
        assert parse_policies([]) == list(Policy)

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["--policies", "plain,fast"], "plain, prefix, lookup, ssr"),
            (["--tasks", "nothing-like-it"], "No task is named"),
            (["--exact", "--threads", "2"], "one"),
            (["--out", "no/such/folder/result.json"], "does not exist"),
            (["--model", "no-such-model"], "no model named"),
        ],
    )
    def test_mistakes_are_told_before_a_model_is_loaded(
        self, arguments: list[str], told: str
    ) -> None:
        result = CliRunner().invoke(bench, arguments)
        assert result.exit_code == 1
        assert told in result.output

    def test_replay_explains_a_file_that_is_no_trace(self, tmp_path: Path) -> None:
        path = tmp_path / "traces.jsonl"
        path.write_text("not json\n")
        result = CliRunner().invoke(bench, ["replay", str(path)])
        assert result.exit_code == 1
        assert "line 1" in result.output

    def test_a_whole_benchmark_on_a_tiny_random_model(self, tmp_path: Path) -> None:
        """The real engine, through the command: all policies write the same, and JSON says so."""
        out = tmp_path / "result.json"
        model = tiny_model("qwen3")
        options = ["--n-ctx", "2048", "--max-tokens", "60", "--thinking-budget", "30", "--exact"]
        arguments = ["--model", str(model), "--tasks", "qa-*", "--out", str(out), *options]
        result = CliRunner().invoke(bench, arguments)
        assert result.exit_code == 0, result.output
        document = json.loads(out.read_text())
        assert len(document["runs"]) == 8
        assert {run["policy"] for run in document["runs"]} == set(Policy)
        assert document["differences"] == []
        assert len(document["model"]["sha256"]) == 64
        assert str(model.parent) not in out.read_text().replace(document["command"], "")
        assert document["threads"] == 1
