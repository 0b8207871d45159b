"""`ssr bench`: run the tasks, or replay traces. A thin layer over `ssr_local.bench`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ssr_local.bench.replay import print_report as print_replay
from ssr_local.bench.replay import run_replay
from ssr_local.bench.report import BenchReport, print_report, run_line
from ssr_local.bench.runner import (
    BenchEngine,
    Failure,
    Run,
    RunOptions,
    Turn,
    run_turns,
    turns,
    warm_up,
)
from ssr_local.bench.task import choose_tasks
from ssr_local.cli_tables import errors_explained, print_error, progress_bar
from ssr_local.default_model import prepare
from ssr_local.errors import InvalidRequest
from ssr_local.request import Policy, Thinking
from ssr_local.settings import EngineSettings

PLAIN_WIDTH = 130
"""Columns of the tables where no terminal says how wide it is."""

bench = typer.Typer(
    name="bench",
    invoke_without_command=True,
    help="Measure what speculation brings on this machine: the tasks under each policy, in turns.",
    epilog="Example: ssr bench --model qwen3-4b --tasks 'json*,edit*' --repeat 3 --out result.json",
)

Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Registry name or path of a GGUF file.", show_default=False),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(help="Names or globs of tasks, or paths of task files; all if left out."),
]
Policies = Annotated[list[str] | None, typer.Option(help="Among plain, prefix, lookup, ssr.")]
Repeat = Annotated[int, typer.Option(min=1, help="Runs of each task under each policy.")]
Out = Annotated[Path | None, typer.Option(help="Write all results to this JSON file.")]
Budget = Annotated[
    int | None, typer.Option(min=0, help="Most thinking tokens, in place of each task's own.")
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Most tokens in all, in place of each task's own.")
]
ThinkingMode = Annotated[Thinking, typer.Option(help="How the model thinks.")]
Temperature = Annotated[float, typer.Option(min=0, help="0 is greedy.")]
Seed = Annotated[int, typer.Option(min=0, help="For temperatures above 0.")]
Context = Annotated[int | None, typer.Option(min=128, help="Tokens that a request may hold.")]
Exact = Annotated[
    bool,
    typer.Option("--exact", help="The exact recipe: one thread, equal rounding, much slower."),
]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads.")]


@bench.callback()
def run_tasks(
    context: typer.Context,
    model: Model = None,
    tasks: Tasks = None,
    policies: Policies = None,
    repeat: Repeat = 1,
    out: Out = None,
    thinking: ThinkingMode = Thinking.AUTO,
    thinking_budget: Budget = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    n_ctx: Context = None,
    threads: Threads = None,
    exact: Exact = False,
) -> None:
    if context.invoked_subcommand:
        return
    options = RunOptions(
        temperature=temperature,
        seed=seed,
        thinking=thinking,
        thinking_budget=thinking_budget,
        max_tokens=max_tokens,
    )
    with errors_explained():
        chosen = parse_policies(_split(policies))
        planned = turns(choose_tasks(_split(tasks)), chosen, repeat)
        _check_writable(out)
        settings = _settings(n_ctx, threads, exact)
        _measure(model, settings, planned, options, out)


@bench.command(epilog="Example: ssr bench replay traces.jsonl --limit-drafts --json")
def replay(
    file: Annotated[Path, typer.Argument(help="Recorded traces, one JSON object a line.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    limit_drafts: Annotated[
        bool, typer.Option("--limit-drafts", help="Only as much draft as fits beside thinking.")
    ] = False,
) -> None:
    """Measure the proposer on recorded traces, without a model."""
    with errors_explained():
        report = run_replay(file, limit_drafts=limit_drafts)
    if as_json:
        print(json.dumps(report.to_json_dict(), indent=2))
    else:
        print_replay(report, _tables())


def parse_policies(names: list[str]) -> list[Policy]:
    """Policies by name, all if none is named.

    Raises:
        InvalidRequest: there is no such policy.
    """
    try:
        return list(dict.fromkeys(Policy(name) for name in names)) or list(Policy)
    except ValueError as error:
        known = ", ".join(Policy)
        raise InvalidRequest(f"policies: {error}; there are {known}") from None


def _settings(n_ctx: int | None, threads: int | None, exact: bool) -> EngineSettings:
    if not exact:
        return EngineSettings(n_ctx=n_ctx, threads=threads)
    if threads not in (None, 1):
        raise InvalidRequest("threads: the exact recipe has one")
    os.environ["GGML_CPU_TILED_MM"] = "0"  # llama.cpp is not loaded yet
    return EngineSettings.exact(n_ctx=n_ctx)


def _measure(
    model: str | None,
    settings: EngineSettings,
    planned: list[Turn],
    options: RunOptions,
    out: Path | None,
) -> None:
    from ssr_local.bench.environment import environment
    from ssr_local.engine import Engine

    with progress_bar() as on_progress:
        resolved = prepare(model, notify=_say, on_progress=on_progress)
    _say(f"Loading {resolved.name}")
    with Engine(resolved, settings) as engine:
        if not engine.info.speculates:
            _say(f"{resolved.name} runs plain under every policy: its memory can't roll back yet.")
        outcomes, interrupted = _run_all(engine, planned, options)
        report = BenchReport.of(outcomes, len(planned))
        print_report(report, _tables())
        if out:
            document = report.as_json(environment(engine.info, settings, sys.argv[1:]), options)
            out.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
            _say(f"Written to {out}")
    if interrupted:
        raise typer.Exit(130)
    if report.failures:
        raise typer.Exit(1)


def _run_all(
    engine: BenchEngine, planned: list[Turn], options: RunOptions
) -> tuple[list[Run | Failure], bool]:
    """All outcomes, with a line on each; what Ctrl-C left of them, and whether there was one."""
    outcomes: list[Run | Failure] = []
    try:
        _say("Warming up")
        warm_up(engine, list(dict.fromkeys(turn.policy for turn in planned)), options)
        for outcome in run_turns(engine, planned, options):
            outcomes.append(outcome)
            _say(f"[{len(outcomes)}/{len(planned)}] {run_line(outcome)}")
    except KeyboardInterrupt:
        print_error("Interrupted; what follows is what was run so far.")
        return outcomes, True
    return outcomes, False


def _split(values: list[str] | None) -> list[str]:
    """Options may be repeated, and hold several values with commas between."""
    parts = (part.strip() for value in values or () for part in value.split(","))
    return [part for part in parts if part]


def _check_writable(out: Path | None) -> None:
    """A result that took an hour must not be lost for want of a folder."""
    if out and (out.is_dir() or not out.parent.is_dir()):
        raise InvalidRequest(f"out: {out} is a folder, or lies in one that does not exist")


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _tables() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)
