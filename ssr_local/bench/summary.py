"""What the runs of a benchmark say: medians, savings against plain, differences in the text.

Pure. A *saving* is the share of plain's time that a policy does not need: 0.25 means a quarter less
time, a negative one that it took longer. Over several tasks it is given in two ways that can differ
a lot: the mean of the tasks' savings (every task counts the same, as the SSR paper has it) and the
saving of the summed times (long tasks count more, as a user waits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean, median
from typing import Literal

from ssr_local.bench.runner import Run
from ssr_local.events import SpeculationStats
from ssr_local.request import Policy

EXCERPT = 40
"""Characters shown from where two texts part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Sums over runs of the answer phase."""

    tokens: int
    steps: int
    proposed: int
    from_draft: int
    from_suffix: int
    from_model: int

    @classmethod
    def of(cls, stats: Sequence[SpeculationStats]) -> Counts:
        draft, suffix, model = (
            sum(getattr(s, name) for s in stats)
            for name in ("accepted_draft", "accepted_suffix", "from_model")
        )
        return cls(
            tokens=draft + suffix + model,
            steps=sum(s.answer_steps for s in stats),
            proposed=sum(s.rows_proposed for s in stats),
            from_draft=draft,
            from_suffix=suffix,
            from_model=model,
        )

    @property
    def tokens_per_step(self) -> float | None:
        return self.tokens / self.steps if self.steps else None

    @property
    def proposed_per_token(self) -> float | None:
        return self.proposed / self.tokens if self.tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One task under one policy: medians over its repetitions, in seconds, and sums of counts."""

    task: str
    policy: Policy
    runs: int
    reasoning_tokens: int
    answer_tokens: int
    prefill: float
    thinking: float
    answer: float
    total: float
    total_range: tuple[float, float]
    drafts: float
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Against plain, over tasks. None where no task had such a phase under plain."""

    mean_of_savings: float | None
    saving_of_sums: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """One policy over all tasks."""

    policy: Policy
    tasks: int
    counts: Counts
    answer: Saving | None
    """None when plain was not run."""
    total: Saving | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A run whose text is not that of its task's first run."""

    task: str
    policy: Policy
    repetition: int
    where: Literal["reasoning", "answer"]
    offset: int
    """Characters on which both agree."""
    expected: str
    found: str


def figures(runs: Iterable[Run]) -> list[Figures]:
    """One entry for each task and policy, in the order in which they were run."""
    groups: dict[tuple[str, Policy], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.turn.task.name, run.turn.policy), []).append(run)
    return [_figures(task, policy, group) for (task, policy), group in groups.items()]


def _figures(task: str, policy: Policy, runs: Sequence[Run]) -> Figures:
    stats = [run.completion.stats for run in runs]
    usage = runs[0].completion.usage
    totals = [s.seconds.total for s in stats]
    return Figures(
        task=task,
        policy=policy,
        runs=len(runs),
        reasoning_tokens=usage.reasoning_tokens,
        answer_tokens=usage.answer_tokens,
        prefill=median(s.seconds.prefill for s in stats),
        thinking=median(s.seconds.thinking for s in stats),
        answer=median(s.seconds.answer for s in stats),
        total=median(totals),
        total_range=(min(totals), max(totals)),
        drafts=median(len(s.drafts) for s in stats),
        counts=Counts.of(stats),
    )


def saving(plain: float, other: float) -> float | None:
    """The share of plain's time that was saved."""
    return 1.0 - other / plain if plain > 0 else None


def overall(table: Sequence[Figures], runs: Sequence[Run]) -> list[Overall]:
    """One entry for each policy. Savings are over tasks that ran under plain as well."""
    plain = {entry.task: entry for entry in table if entry.policy is Policy.PLAIN}
    result = []
    for policy in dict.fromkeys(entry.policy for entry in table):
        entries = [entry for entry in table if entry.policy is policy]
        pairs = [(plain[entry.task], entry) for entry in entries if entry.task in plain]
        stats = [run.completion.stats for run in runs if run.turn.policy is policy]
        result.append(
            Overall(
                policy=policy,
                tasks=len(entries),
                counts=Counts.of(stats),
                answer=_saving_over(pairs, lambda entry: entry.answer),
                total=_saving_over(pairs, lambda entry: entry.total),
            )
        )
    return result


def _saving_over(
    pairs: Sequence[tuple[Figures, Figures]], seconds: Callable[[Figures], float]
) -> Saving | None:
    if not pairs:
        return None
    times = [(seconds(plain), seconds(other)) for plain, other in pairs]
    savings = [share for plain, other in times if (share := saving(plain, other)) is not None]
    return Saving(
        mean_of_savings=fmean(savings) if savings else None,
        saving_of_sums=saving(sum(t[0] for t in times), sum(t[1] for t in times)),
    )


def differences(runs: Iterable[Run]) -> list[Difference]:
    """Runs whose text differs from that of the first run of their task. Plain usually comes first,
    so repeated plain runs show how steady the backend itself is."""
    first: dict[str, Run] = {}
    found = []
    for run in runs:
        difference = _difference(first.setdefault(run.turn.task.name, run), run)
        if difference:
            found.append(difference)
    return found


def _difference(expected: Run, found: Run) -> Difference | None:
    for where in ("reasoning", "answer"):
        wanted: str = getattr(expected.completion, where)
        actual: str = getattr(found.completion, where)
        if wanted != actual:
            offset = _agreement(wanted, actual)
            return Difference(
                task=found.turn.task.name,
                policy=found.turn.policy,
                repetition=found.turn.repetition,
                where=where,
                offset=offset,
                expected=wanted[offset : offset + EXCERPT],
                found=actual[offset : offset + EXCERPT],
            )
    return None


def _agreement(left: str, right: str) -> int:
    """Length of the common beginning."""
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
