"""Shows the results of a benchmark: tables for people, one JSON document for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ssr_local.bench.runner import Failure, Run, RunOptions
from ssr_local.bench.summary import (
    Counts,
    Difference,
    Figures,
    Overall,
    Saving,
    differences,
    figures,
    overall,
    saving,
)
from ssr_local.request import Policy

FORMAT = 1
"""Of the JSON document; counts up when a field changes its meaning."""

NONE = "-"
COUNT_COLUMNS = ("tokens/step", "proposed/token", "draft/suffix/own")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """All that came of the runs that were made."""

    runs: Sequence[Run]
    failures: Sequence[Failure]
    planned: int
    figures: Sequence[Figures]
    overall: Sequence[Overall]
    differences: Sequence[Difference]

    @classmethod
    def of(cls, outcomes: Iterable[Run | Failure], planned: int) -> BenchReport:
        """Sum up what was run so far; `planned` says how many turns there were to be."""
        outcomes = list(outcomes)
        runs = [outcome for outcome in outcomes if isinstance(outcome, Run)]
        table = figures(runs)
        return cls(
            runs=runs,
            failures=[outcome for outcome in outcomes if isinstance(outcome, Failure)],
            planned=planned,
            figures=table,
            overall=overall(table, runs),
            differences=differences(runs),
        )

    @property
    def complete(self) -> bool:
        return len(self.runs) == self.planned

    def as_json(self, environment: Mapping[str, Any], options: RunOptions) -> dict[str, Any]:
        """The document that `--out` writes. `environment` leads it."""
        return {
            "format": FORMAT,
            **environment,
            "options": asdict(options),
            "complete": self.complete,
            "overall": [asdict(entry) for entry in self.overall],
            "tasks": [asdict(entry) for entry in self.figures],
            "differences": [asdict(entry) for entry in self.differences],
            "failures": [{**_turn(entry), "message": entry.message} for entry in self.failures],
            "runs": [_run(entry) for entry in self.runs],
        }


def _turn(outcome: Run | Failure) -> dict[str, Any]:
    turn = outcome.turn
    return {
        "task": turn.task.name,
        "kind": turn.task.kind,
        "policy": turn.policy,
        "repetition": turn.repetition,
    }


def _run(run: Run) -> dict[str, Any]:
    completion = run.completion
    stats = asdict(completion.stats)
    stats["seconds"]["total"] = completion.stats.seconds.total
    return {
        **_turn(run),
        "finish_reason": completion.finish_reason,
        "usage": asdict(completion.usage),
        **stats,
        "tokens_per_step": completion.stats.tokens_per_step,
        "reasoning": completion.reasoning,
        "answer": completion.answer,
    }


def run_line(outcome: Run | Failure) -> str:
    """One run in a line, for the progress of a long benchmark."""
    name = f"{outcome.turn.task.name} {outcome.turn.policy}"
    if isinstance(outcome, Failure):
        return f"{name}: failed: {outcome.message}"
    usage, stats = outcome.completion.usage, outcome.completion.stats
    return (
        f"{name}: {stats.seconds.total:.1f} s, thinking {usage.reasoning_tokens} tokens in "
        f"{stats.seconds.thinking:.1f} s, answer {usage.answer_tokens} in "
        f"{stats.seconds.answer:.1f} s, {stats.tokens_per_step:.2f} tokens/step"
    )


def print_report(report: BenchReport, console: Console) -> None:
    """The tables, then whatever is not as it should be."""
    console.print(_task_table(report.figures))
    console.print(_overall_table(report.overall))
    if report.figures:
        _print_differences(report, console)
    for failure in report.failures:
        console.print(f"[bold red]failed[/] {escape(run_line(failure))}")
    if not report.complete:
        done = len(report.runs)
        console.print(f"[bold]Not complete:[/] {done} of {report.planned} runs were made.")


def _task_table(table: Sequence[Figures]) -> Table:
    shown = Table(title="By task: medians in seconds, time against plain", title_justify="left")
    for name in ("task", "policy"):
        shown.add_column(name, no_wrap=True)
    for name in (
        "tokens",
        "thinking",
        "answer",
        "total",
        *COUNT_COLUMNS,
        "answer",
        "total",
    ):
        shown.add_column(name, justify="right", no_wrap=True)
    plain = {entry.task: entry for entry in table if entry.policy is Policy.PLAIN}
    for index, entry in enumerate(table):
        last = index + 1 == len(table) or table[index + 1].task != entry.task
        first = index == 0 or table[index - 1].task != entry.task
        shown.add_row(*_task_row(entry, plain.get(entry.task), named=first), end_section=last)
    return shown


def _task_row(entry: Figures, plain: Figures | None, *, named: bool) -> list[str]:
    answer = saving(plain.answer, entry.answer) if plain else None
    total = saving(plain.total, entry.total) if plain else None
    return [
        escape(entry.task) if named else "",
        entry.policy,
        f"{entry.reasoning_tokens}+{entry.answer_tokens}",
        f"{entry.thinking:.2f}",
        f"{entry.answer:.2f}",
        f"{entry.total:.2f}",
        *_count_cells(entry.counts),
        _change(answer),
        _change(total),
    ]


def _count_cells(counts: Counts) -> list[str]:
    """Tokens per step, proposed rows per token, and who the tokens came from."""
    if not counts.tokens:
        return [NONE, NONE, NONE]
    origins = (counts.from_draft, counts.from_suffix, counts.from_model)
    return [
        _number(counts.tokens_per_step),
        _number(counts.proposed_per_token),
        "/".join(f"{100 * origin / counts.tokens:.0f}" for origin in origins) + " %",
    ]


def _overall_table(table: Sequence[Overall]) -> Table:
    shown = Table(title="Over all tasks: time against plain", title_justify="left")
    shown.add_column("policy", no_wrap=True)
    for name in (
        "tasks",
        *COUNT_COLUMNS,
        "answer: mean",
        "sum",
        "total: mean",
        "sum",
    ):
        shown.add_column(name, justify="right", no_wrap=True)
    for entry in table:
        shown.add_row(
            entry.policy,
            str(entry.tasks),
            *_count_cells(entry.counts),
            *_saving_cells(entry.answer),
            *_saving_cells(entry.total),
        )
    return shown


def _saving_cells(saved: Saving | None) -> list[str]:
    if saved is None:
        return [NONE, NONE]
    return [_change(saved.mean_of_savings), _change(saved.saving_of_sums)]


def _change(saved: float | None) -> str:
    """A saving as the change of the time: a quarter saved is -25.0 %."""
    if saved is None:
        return NONE
    return f"{-100 * saved:+.1f} %" if saved else "0.0 %"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _print_differences(report: BenchReport, console: Console) -> None:
    count = len(report.differences)
    if not count:
        console.print("All policies wrote the same text.")
        return
    console.print(
        f"[bold]{count} of {len(report.runs)} runs[/] wrote a text that differs from the first "
        "run's (rounding between batch shapes can do that; see docs/lossless.md):"
    )
    for entry in report.differences:
        console.print(
            f"  {entry.task} {entry.policy}, repetition {entry.repetition + 1}: {entry.where} "
            f"from character {entry.offset}: {entry.expected!r} became {entry.found!r}",
            markup=False,
            highlight=False,
        )
