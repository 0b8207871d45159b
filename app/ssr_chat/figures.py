"""The figures under a reply: live while it is written, final when it is done. Pure.

Definitions are the engine's: tokens per step is answer tokens per target pass (plain decoding is
1.0), accepted is the share of answer tokens that speculation had proposed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ssr_chat.reply import Phase, Reply
from ssr_local.events import Finished, Origin, SpeculationStats, Usage


@dataclass(frozen=True, slots=True)
class Figure:
    """`title` explains it when the pointer rests on it."""

    value: str
    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar: `kind` is its CSS class, `share` from 0 to 1."""

    kind: str
    share: float
    label: str


def figures(reply: Reply) -> list[Figure]:
    """What there is to say at this moment; empty before anything was written."""
    if reply.finished:
        return _final(reply.finished)
    if reply.phase is Phase.THINKING:
        return _while_thinking(reply)
    if reply.phase is Phase.ANSWERING:
        return _while_answering(reply)
    return []


def origin_bar(reply: Reply) -> list[Part]:
    """The answer's tokens by who proposed them."""
    total = reply.by_origin.total()
    return [
        Part(origin.value, count / total, f"{origin.value} {count / total:.0%}")
        for origin in (Origin.DRAFT, Origin.SUFFIX, Origin.MODEL)
        if (count := reply.by_origin[origin])
    ]


def phase_bar(reply: Reply) -> list[Part]:
    """The request's time by phase."""
    if not reply.finished:
        return []
    seconds = reply.finished.stats.seconds
    phases = {
        "waited": seconds.queue,
        "read": seconds.prefill,
        "thought": seconds.thinking,
        "answered": seconds.answer,
    }
    total = sum(phases.values())
    return [
        Part(name, value / total, f"{name} {duration(value)}")
        for name, value in phases.items()
        if value >= 0.05
    ]


def duration(seconds: float) -> str:
    """For people: 0.4 s, 12 s, 2 min 5 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _while_thinking(reply: Reply) -> list[Figure]:
    began = reply.thought.began or 0.0
    return _speed(reply.thought.tokens, reply.now - began) + _drafted(reply)


def _while_answering(reply: Reply) -> list[Figure]:
    tokens, began = reply.by_origin.total(), reply.answer_began or 0.0
    # Each target pass ends with the one token that is the model's own.
    steps = max(1, reply.by_origin[Origin.MODEL])
    return [
        *_speed(tokens, reply.now - began),
        _per_step(tokens / steps),
        _accepted(tokens - reply.by_origin[Origin.MODEL], tokens),
    ]


def _final(finished: Finished) -> list[Figure]:
    usage, stats = finished.usage, finished.stats
    shown = _speed(usage.completion_tokens, stats.seconds.thinking + stats.seconds.answer)
    if stats.answer_steps:
        accepted = stats.accepted_draft + stats.accepted_suffix
        shown += [_per_step(stats.tokens_per_step), _accepted(accepted, usage.answer_tokens)]
    shown += _against_plain(stats)
    shown.append(_tokens(usage))
    return shown


def _speed(tokens: int, seconds: float) -> list[Figure]:
    if not tokens or seconds < 0.2:
        return []
    return [Figure(f"{tokens / seconds:.1f}", "tokens/s", "Tokens written per second")]


def _drafted(reply: Reply) -> list[Figure]:
    if not reply.draft:
        return []
    title = f"Tokens of draft {reply.drafts}, written in the same batches as the thinking"
    return [Figure(f"{reply.draft.tokens:,}", "tokens drafted", title)]


def _per_step(value: float) -> Figure:
    title = "Answer tokens per pass of the model; plain decoding is 1.0"
    return Figure(f"{value:.1f}", "tokens/step", title)


def _accepted(accepted: int, tokens: int) -> Figure:
    share = accepted / tokens if tokens else 0.0
    title = f"{accepted} of {tokens} answer tokens had been proposed by the draft or a suffix match"
    return Figure(f"{share:.0%}", "accepted", title)


def _against_plain(stats: SpeculationStats) -> list[Figure]:
    """How much sooner than plain decoding, if that is known and not within the noise."""
    plain = stats.estimated_plain_seconds
    taken = stats.seconds.total - stats.seconds.queue
    speculated = stats.rows_proposed or stats.drafts
    if plain is None or not speculated or abs(plain - taken) < max(0.1, 0.02 * plain):
        return []
    title = f"Estimate: without speculation {duration(plain)} instead of {duration(taken)}"
    name = f"{'sooner' if plain > taken else 'later'} than plain (est.)"
    return [Figure(duration(abs(plain - taken)), name, title)]


def _tokens(usage: Usage) -> Figure:
    parts = [f"prompt {usage.prompt_tokens:,} ({usage.prompt_tokens_reused:,} still in memory)"]
    if usage.reasoning_tokens:
        parts.append(f"thinking {usage.reasoning_tokens:,}")
    parts.append(f"answer {usage.answer_tokens:,}")
    return Figure(f"{usage.completion_tokens:,}", "tokens", ", ".join(parts))
