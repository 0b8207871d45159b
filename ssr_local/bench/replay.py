"""Replay: how well would the proposer have done on answers that a model really wrote?

Owns reading recorded traces, replaying them without a model, and the figures. Drives the same
`AnswerProposer` and `SuffixCache` as the engine, so a change to either shows here in a second.

A *step* is one target pass over the answer; it verifies k proposed tokens and the pending one, so
it counts k + 1 *rows*: plain decoding has 1.00 rows per token. `proposed_per_token` counts only the
k. Tokens of a step: those accepted, and the one that the model adds. Rows spent on writing drafts
are not counted: they ride along with thinking.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.console import Console
from rich.table import Table

from ssr_local.decoding.proposer import AnswerProposer, Proposal, ProposerSettings
from ssr_local.decoding.suffix_cache import SuffixCache
from ssr_local.errors import InvalidRequest
from ssr_local.events import Origin
from ssr_local.request import Policy, describe

TokenId = Annotated[int, Field(ge=0, lt=2**31, strict=True)]

_NO_LIMIT = 1 << 20
"""The proposer's settings bound a span; the answer's end must not, for no engine knows it."""


class RecordedDraft(BaseModel):
    """What the model wrote when its thinking was closed after `cot_tokens` tokens."""

    model_config = ConfigDict(frozen=True)

    cot_tokens: Annotated[int, Field(ge=0)]
    tokens: list[TokenId]


class Trace(BaseModel):
    """One recorded request, as token ids. Fields that replay does not need are ignored."""

    model_config = ConfigDict(frozen=True)

    name: str
    prompt: list[TokenId]
    cot: list[TokenId]
    close: list[TokenId]
    answer: Annotated[list[TokenId], Field(min_length=1)]
    drafts: list[RecordedDraft]

    @property
    def context(self) -> list[int]:
        """All that precedes the answer."""
        return [*self.prompt, *self.cot, *self.close]


@dataclass(slots=True)
class Tally:
    """What a mode did, on one trace or on all."""

    steps: int = 0
    tokens: int = 0
    proposed: dict[Origin, int] = field(default_factory=lambda: {Origin.DRAFT: 0, Origin.SUFFIX: 0})
    accepted: dict[Origin, int] = field(default_factory=lambda: {Origin.DRAFT: 0, Origin.SUFFIX: 0})

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps

    @property
    def proposed_per_token(self) -> float:
        return sum(self.proposed.values()) / self.tokens

    @property
    def rows_per_token(self) -> float:
        return (sum(self.proposed.values()) + self.steps) / self.tokens

    def count(self, proposal: Proposal, accepted: int, written: int) -> None:
        """One step that verified `proposal` and wrote `written` tokens."""
        self.steps += 1
        self.tokens += written
        if proposal.tokens:
            self.proposed[proposal.origin] += len(proposal.tokens)
            self.accepted[proposal.origin] += accepted

    def add(self, other: Tally) -> None:
        self.steps += other.steps
        self.tokens += other.tokens
        for origin in self.proposed:
            self.proposed[origin] += other.proposed[origin]
            self.accepted[origin] += other.accepted[origin]

    def to_json_dict(self) -> dict[str, Any]:
        return {
            "tokens_per_step": round(self.tokens_per_step, 3),
            "rows_per_token": round(self.rows_per_token, 3),
            "proposed_per_token": round(self.proposed_per_token, 3),
            **asdict(self),
        }


@dataclass(frozen=True, slots=True)
class ReplayReport:
    limit_drafts: bool
    traces: dict[str, dict[Policy, Tally]]
    """By trace name, in the order of the file."""

    @property
    def overall(self) -> dict[Policy, Tally]:
        """Sums over all traces: every token counts the same, every step too."""
        totals = {mode: Tally() for mode in Policy}
        for by_mode in self.traces.values():
            for mode, tally in by_mode.items():
                totals[mode].add(tally)
        return totals

    def to_json_dict(self) -> dict[str, Any]:
        return {
            "limit_drafts": self.limit_drafts,
            **_modes_to_json(self.overall),
            "traces": {name: _modes_to_json(modes) for name, modes in self.traces.items()},
        }


def run_replay(
    path: Path, *, limit_drafts: bool = False, settings: ProposerSettings | None = None
) -> ReplayReport:
    """Replay every trace of a file in every mode, each with a fresh cache.

    Args:
        limit_drafts: give drafts only as many target passes as a live engine would, see
            `live_drafts`. False takes all recorded drafts as complete.

    Raises:
        InvalidRequest: the file can't be read, or a line is not a trace; the message says which.
    """
    settings = settings or ProposerSettings()
    traces = read_traces(path)
    return ReplayReport(
        limit_drafts,
        {
            trace.name: {mode: _replay(trace, mode, limit_drafts, settings) for mode in Policy}
            for trace in traces
        },
    )


def read_traces(path: Path) -> list[Trace]:
    """All traces of a JSON-lines file. Names must be unique, because results go by name."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path.name} can't be read as a trace file: {error}") from error
    traces: dict[str, Trace] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            trace = _parse(line, f"{path.name}, line {number}")
            if trace.name in traces:
                raise InvalidRequest(f"{path.name}, line {number}: name {trace.name!r} is not new")
            traces[trace.name] = trace
    if not traces:
        raise InvalidRequest(f"{path.name} holds no traces")
    return list(traces.values())


def _parse(line: str, where: str) -> Trace:
    try:
        return Trace.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{where}: not JSON: {error}") from error
    except ValidationError as error:
        raise InvalidRequest(f"{where}: {describe(error)}") from error


def live_drafts(
    trace: Trace, cache: SuffixCache | None, settings: ProposerSettings
) -> list[list[int]]:
    """The drafts that a live engine has when thinking ends.

    A draft takes part in one target pass for each thinking token from its checkpoint on, until the
    next checkpoint replaces it or thinking ends. It speculates as the answer does, from the draft
    before it. What the drafts write goes into `cache`.
    """
    ordered = sorted(trace.drafts, key=lambda draft: draft.cot_tokens)
    ends = [*(draft.cot_tokens for draft in ordered), len(trace.cot)]
    drafts: list[list[int]] = []
    for draft, (start, end) in zip(ordered, pairwise(ends), strict=False):
        context = [*trace.prompt, *trace.cot[:start], *trace.close]
        earlier = drafts[-1] if drafts else []
        proposer = AnswerProposer(cache, context, earlier, settings)
        written = _speculate(proposer, draft.tokens, max_steps=max(0, end - start)).tokens
        drafts.append(draft.tokens[:written])
    return drafts


def _replay(trace: Trace, mode: Policy, limit_drafts: bool, settings: ProposerSettings) -> Tally:
    """One trace in one mode, from an empty cache."""
    cache = SuffixCache() if mode in (Policy.LOOKUP, Policy.SSR) else None
    if cache is not None:
        cache.document().extend(trace.context)
    drafts: list[list[int]] = []
    if mode in (Policy.PREFIX, Policy.SSR):
        make = live_drafts if limit_drafts else _complete_drafts
        drafts = make(trace, cache, settings)
    newest = drafts[-1] if drafts else []
    return _speculate(AnswerProposer(cache, trace.context, newest, settings), trace.answer)


def _complete_drafts(
    trace: Trace, cache: SuffixCache | None, settings: ProposerSettings
) -> list[list[int]]:
    """All recorded drafts at full length, put into `cache`."""
    ordered = sorted(trace.drafts, key=lambda draft: draft.cot_tokens)
    for draft in ordered:
        if cache is not None:
            cache.document().extend(draft.tokens)
    return [draft.tokens for draft in ordered]


def _speculate(
    proposer: AnswerProposer, truth: Sequence[int], max_steps: int | None = None
) -> Tally:
    """Write `truth` with the proposer's help; the part written and what it took."""
    tally = Tally()
    while tally.tokens < len(truth) and (max_steps is None or tally.steps < max_steps):
        left = truth[tally.tokens :]
        proposal = proposer.propose(_NO_LIMIT)
        accepted = _agreeing(proposal.tokens, left)
        written = left[: accepted + 1]
        tally.count(proposal, accepted, len(written))
        proposer.advance(written)
    return tally


def _agreeing(proposed: Iterable[int], truth: Iterable[int]) -> int:
    """Length of the common prefix."""
    agreeing = 0
    for ours, theirs in zip(proposed, truth, strict=False):
        if ours != theirs:
            break
        agreeing += 1
    return agreeing


def _modes_to_json(modes: dict[Policy, Tally]) -> dict[str, Any]:
    """The figures of full SSR first, then those of every policy."""
    figures = modes[Policy.SSR].to_json_dict()
    return {
        "tokens_per_step": figures["tokens_per_step"],
        "rows_per_token": figures["rows_per_token"],
        "policies": {mode: tally.to_json_dict() for mode, tally in modes.items()},
    }


def print_report(report: ReplayReport, console: Console) -> None:
    """Two tables: each mode over all traces, and tokens per step of each trace."""
    drafts = "as far as a live engine gets" if report.limit_drafts else "complete"
    console.print(_overall_table(report, f"Replay over all traces (drafts {drafts})"))
    console.print(_trace_table(report))
    console.print("rows: proposed tokens and the pending one of each step", style="dim")


def _overall_table(report: ReplayReport, title: str) -> Table:
    table = Table("mode", title=title)
    for name in ("tokens/step", "rows/token", "proposed/token", "from draft", "from suffix"):
        table.add_column(name, justify="right")
    for mode, tally in report.overall.items():
        figures = (tally.tokens_per_step, tally.rows_per_token, tally.proposed_per_token)
        shares = (_share(tally, origin) for origin in (Origin.DRAFT, Origin.SUFFIX))
        table.add_row(mode, *(f"{figure:.2f}" for figure in figures), *shares)
    return table


def _share(tally: Tally, origin: Origin) -> str:
    proposed, accepted = tally.proposed[origin], tally.accepted[origin]
    return f"{accepted} of {proposed} ({accepted / proposed:.0%})" if proposed else "-"


def _trace_table(report: ReplayReport) -> Table:
    table = Table("trace", title="Tokens per step")
    for mode in Policy:
        table.add_column(mode, justify="right")
    for name, modes in report.traces.items():
        table.add_row(name, *(f"{tally.tokens_per_step:.2f}" for tally in modes.values()))
    return table
