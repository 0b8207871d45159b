"""Runs tasks under several policies, in turns, on one loaded engine.

Turns (A B C D A B C D) spread what the machine does beside us over all policies alike. Before each
run the engine forgets everything, so that no run profits from the one before. What the figures mean
is `ssr_local.bench.summary`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ssr_local.bench.task import Task
from ssr_local.errors import EngineClosed, SSRError
from ssr_local.generation import Completion
from ssr_local.request import Policy, Request, Sampling, Thinking


class BenchEngine(Protocol):
    """What a benchmark needs of an engine."""

    def generate(self, request: Request) -> Completion: ...
    def forget(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What all runs share. None leaves the task's own limit."""

    temperature: float = 0.0
    seed: int = 0
    thinking: Thinking = Thinking.AUTO
    thinking_budget: int | None = None
    max_tokens: int | None = None

    def request(self, task: Task, policy: Policy) -> Request:
        budget = self.thinking_budget if self.thinking_budget is not None else task.thinking_budget
        return Request.of(
            task.prompt,
            sampling=Sampling(
                temperature=self.temperature,
                seed=self.seed,
                repetition_penalty=1.0,  # whatever the makers recommend: it punishes copying
            ),
            thinking=self.thinking,
            thinking_budget=budget,
            max_tokens=self.max_tokens or task.max_tokens,
            policy=policy,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run that is to be made. Repetitions are numbered from 0."""

    task: Task
    policy: Policy
    repetition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A turn that was run to its end."""

    turn: Turn
    completion: Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A turn that could not be run: a prompt that is too long for the context, say."""

    turn: Turn
    message: str


def turns(tasks: Sequence[Task], policies: Sequence[Policy], repetitions: int) -> list[Turn]:
    """Task by task; within a task every policy once, then every policy again."""
    return [
        Turn(task=task, policy=policy, repetition=repetition)
        for task in tasks
        for repetition in range(repetitions)
        for policy in policies
    ]


def warm_up(engine: BenchEngine, policies: Sequence[Policy], options: RunOptions) -> None:
    """Run every policy briefly, untimed: weights get read in, buffers allocated."""
    request = Request.of(
        "Count from one to ten, then from one to ten again.",
        sampling=Sampling(temperature=0.0),
        thinking=options.thinking,
        thinking_budget=8,
        max_tokens=24,
    )
    for policy in policies:
        engine.forget()
        engine.generate(request.model_copy(update={"policy": policy}))


def run_turns(
    engine: BenchEngine, planned: Sequence[Turn], options: RunOptions
) -> Iterator[Run | Failure]:
    """Make the runs, one after another, as the caller asks for them."""
    for turn in planned:
        engine.forget()
        try:
            completion = engine.generate(options.request(turn.task, turn.policy))
        except EngineClosed:
            raise
        except SSRError as error:
            yield Failure(turn=turn, message=str(error))
        else:
            yield Run(turn=turn, completion=completion)
