"""What became of a finished request: as one line, as a table, as JSON.

Pure: nothing is printed here. The live side is `ssr_local.terminal`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.table import Table

from ssr_local.events import Finished, SpeculationStats
from ssr_local.generation import Completion

_LIMIT_NOTES = {
    "length": "cut off: the token limit or the context is reached",
    "cancelled": "cancelled",
}


def closing_line(finished: Finished) -> str:
    """How the request went: why it was cut short, acceptance, time by phase."""
    return " · ".join(_closing_parts(finished))


def _closing_parts(finished: Finished) -> Iterator[str]:
    stats = finished.stats
    if note := _LIMIT_NOTES.get(finished.finish_reason):
        yield note
    if stats.answer_steps:
        yield f"{stats.tokens_per_step:.1f} tokens/step"
    if stats.rows_proposed:
        yield (
            f"{stats.accepted_draft} draft + {stats.accepted_suffix} suffix "
            f"accepted of {stats.rows_proposed}"
        )
    for phase in ("queue", "prefill", "thinking", "answer"):
        seconds = getattr(stats.seconds, phase)
        if seconds > (0.1 if phase == "queue" else 0):
            yield f"{phase} {in_seconds(seconds)}"
    if stats.estimated_plain_seconds is not None and _speculated(stats):
        yield f"without speculation about {in_seconds(stats.estimated_plain_seconds)}"


def _speculated(stats: SpeculationStats) -> bool:
    return bool(stats.rows_proposed or stats.drafts)


def in_seconds(seconds: float) -> str:
    """Two decimals under a second, one above: 0.04 s, 12.3 s."""
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"


def completion_as_json(completion: Completion) -> dict[str, Any]:
    """The object that `ssr generate --json` prints."""
    usage, stats = completion.usage, completion.stats
    return {
        "answer": completion.answer,
        "reasoning": completion.reasoning,
        "finish_reason": completion.finish_reason,
        "usage": asdict(usage) | {"completion_tokens": usage.completion_tokens},
        "stats": stats_as_json(stats),
    }


def stats_as_json(stats: SpeculationStats) -> dict[str, Any]:
    """All counters, and the figures that follow from them."""
    fields = asdict(stats)
    fields["seconds"]["total"] = stats.seconds.total
    fields["acceptance_lengths"] = list(stats.acceptance_lengths)
    fields["drafts"] = list(fields["drafts"])
    derived = {"answer_steps": stats.answer_steps, "tokens_per_step": stats.tokens_per_step}
    return fields | derived


def stats_table(finished: Finished) -> Table:
    """Everything that `--stats` shows."""
    table = Table(title="What speculation did", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in _stats_rows(finished):
        table.add_row(name, value)
    return table


def _stats_rows(finished: Finished) -> Iterator[tuple[str, str]]:
    usage, stats = finished.usage, finished.stats
    yield "prompt", f"{usage.prompt_tokens} tokens, {usage.prompt_tokens_reused} of them reused"
    yield "thinking", f"{usage.reasoning_tokens} tokens in {stats.thinking_steps} steps"
    yield (
        "answer",
        f"{usage.answer_tokens} tokens in {stats.answer_steps} steps: "
        f"{stats.tokens_per_step:.2f} tokens/step",
    )
    yield (
        "answer tokens",
        f"{stats.accepted_draft} from the draft, {stats.accepted_suffix} from suffix matches, "
        f"{stats.from_model} by the model alone",
    )
    yield "rows proposed", _proposed(stats)
    if stats.acceptance_lengths:
        yield "tokens by step", " ".join(map(str, stats.acceptance_lengths))
    for number, draft in enumerate(stats.drafts):
        yield (
            f"draft {number}",
            f"after {draft.checkpoint} CoT tokens: {draft.tokens} tokens in {draft.steps} steps, "
            f"{draft.end}",
        )
    for phase, seconds in asdict(stats.seconds).items():
        yield f"time: {phase}", in_seconds(seconds)
    yield "time: total", in_seconds(stats.seconds.total)
    if stats.estimated_plain_seconds is not None:
        yield "without speculation", f"about {in_seconds(stats.estimated_plain_seconds)}"


def _proposed(stats: SpeculationStats) -> str:
    if not stats.rows_proposed:
        return "none"
    accepted = stats.accepted_draft + stats.accepted_suffix
    return f"{stats.rows_proposed}, {accepted / stats.rows_proposed:.0%} accepted"
