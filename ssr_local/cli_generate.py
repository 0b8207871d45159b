"""`ssr generate`: one request from a shell, from its options to its exit code.

What it looks like is `ssr_local.terminal`'s and `ssr_local.report`'s matter.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.status import Status
from rich.text import Text

from ssr_local.errors import InvalidRequest
from ssr_local.events import Failed, Finished
from ssr_local.generation import Generation, collect
from ssr_local.report import completion_as_json, stats_table
from ssr_local.request import Message, Policy, Request, Thinking, describe
from ssr_local.settings import EngineSettings
from ssr_local.terminal import DIM, TerminalView, consoles

if TYPE_CHECKING:
    from ssr_local.download import Progress
    from ssr_local.engine import Engine

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the signal's number, as shells have it."""
PATIENCE = 2.0
"""Seconds of silence while a model is loaded, before something is said about it."""

EXAMPLES = """
Examples:

  ssr generate "Why is the sky blue?"

  ssr generate --model qwen3-4b --thinking-budget 500 "Prove that 17 is prime."

  ssr generate --no-speculation --seed 1 --stats "Write a haiku."

  ssr generate --prediction old.py "Rename f to area: $(cat old.py)" > new.py

  git diff | ssr generate --system "Write a commit message." -

  ssr generate --json "Name a prime." | jq .stats.tokens_per_step

stdout gets the answer and nothing else; thinking, messages and the closing line go to stderr.
Ctrl-C keeps what was written and exits with 130; a second one exits at once.
"""

_REQUEST, _SAMPLING, _ENGINE = "Request", "Sampling (default: as the makers recommend)", "Engine"


def _option(*names: str, help: str, panel: str = _REQUEST, metavar: str | None = None) -> Any:
    return typer.Option(
        *names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False
    )


Prompt = Annotated[
    str | None,
    typer.Argument(help="What to ask; '-', or nothing in a pipe, reads stdin.", show_default=False),
]
Model = Annotated[
    str | None,
    _option("--model", "-m", help="Registry name or path of a GGUF file.", panel=_ENGINE),
]
System = Annotated[str | None, _option("--system", "-s", help="System message.")]
ThinkingMode = Annotated[
    Thinking,
    _option("--thinking", help="auto: as the model does by itself. prompted: for instruct models."),
]
Budget = Annotated[
    int | None, _option("--thinking-budget", help="Most thinking tokens before the answer.")
]
MaxTokens = Annotated[
    int | None, _option("--max-tokens", help="Most tokens, thinking and answer together.")
]
Stop = Annotated[
    list[str] | None, _option("--stop", help="Text that ends the answer. May be repeated.")
]
Temperature = Annotated[
    float | None, _option("--temperature", help="0 is greedy.", panel=_SAMPLING)
]
TopP = Annotated[float | None, _option("--top-p", help="Nucleus.", panel=_SAMPLING)]
TopK = Annotated[int | None, _option("--top-k", help="Most likely k; 0: all.", panel=_SAMPLING)]
MinP = Annotated[
    float | None,
    _option("--min-p", help="Least probability, relative to the top.", panel=_SAMPLING),
]
RepetitionPenalty = Annotated[
    float | None,
    _option("--repetition-penalty", help="1: none, which copying likes best.", panel=_SAMPLING),
]
Seed = Annotated[
    int | None,
    _option("--seed", help="Same seed, same text, whatever speculation does.", panel=_SAMPLING),
]
PolicyOption = Annotated[
    Policy | None,
    _option("--policy", help="How to speculate (default: ssr). Never changes the answer."),
]
NoSpeculation = Annotated[
    bool, _option("--no-speculation", help="Plain decoding, to compare: --policy plain.")
]
Prediction = Annotated[
    Path | None,
    _option(
        "--prediction",
        help="File that the answer will resemble, such as the one being edited: speeds it up.",
        metavar="FILE",
    ),
]
NCtx = Annotated[int | None, _option("--n-ctx", help="Context, in tokens.", panel=_ENGINE)]
Threads = Annotated[int | None, _option("--threads", help="CPU threads.", panel=_ENGINE)]
GpuLayers = Annotated[
    int | None, _option("--n-gpu-layers", help="Layers on the GPU; all if left out.", panel=_ENGINE)
]
StatsFlag = Annotated[bool, typer.Option("--stats", help="Show all counters at the end.")]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, at the end, in place of text.")
]


def generate(
    prompt: Prompt = None,
    model: Model = None,
    system: System = None,
    thinking: ThinkingMode = Thinking.AUTO,
    thinking_budget: Budget = None,
    max_tokens: MaxTokens = None,
    stop: Stop = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = None,
    policy: PolicyOption = None,
    no_speculation: NoSpeculation = False,
    prediction: Prediction = None,
    n_ctx: NCtx = None,
    threads: Threads = None,
    n_gpu_layers: GpuLayers = None,
    stats: StatsFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Ask a model once. Shows thinking, drafting and the answer as they come."""
    from ssr_local.cli_tables import errors_explained

    with errors_explained():
        request = Request.of(
            _messages(system, _prompt(prompt)),
            sampling={
                "temperature": temperature,
                "top_p": top_p,
                "top_k": top_k,
                "min_p": min_p,
                "repetition_penalty": repetition_penalty,
                "seed": seed,
            },
            thinking=thinking,
            thinking_budget=thinking_budget,
            max_tokens=max_tokens,
            stop=stop or [],
            policy=_policy(policy, no_speculation),
            prediction=_text_of(prediction) if prediction else None,
        )
        settings = _settings(n_ctx=n_ctx, threads=threads, n_gpu_layers=n_gpu_layers)
        out, err = consoles()
        with loaded_engine(model, settings, err) as engine:
            run = _run_json if as_json else _run_streaming
            _run(engine, request, lambda generation: run(generation, request, out, err), stats, err)


# From options to a request


def _prompt(given: str | None) -> str:
    """The prompt, read from stdin where it is piped and none is given.

    Raises:
        typer.BadParameter: there is none.
    """
    if given not in (None, "-"):
        return str(given)
    if given is None and sys.stdin.isatty():
        raise typer.BadParameter("give a prompt, or pipe one in", param_hint="PROMPT")
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The prompt on stdin is not UTF-8 text: {error}") from error
    if not text.strip():
        raise typer.BadParameter("stdin holds no prompt", param_hint="PROMPT")
    return text


def _messages(system: str | None, prompt: str) -> list[Message]:
    first = [Message(role="system", content=system)] if system else []
    return [*first, Message(role="user", content=prompt)]


def _policy(policy: Policy | None, no_speculation: bool) -> Policy:
    if no_speculation and policy not in (None, Policy.PLAIN):
        raise typer.BadParameter(
            f"--no-speculation contradicts --policy {policy}", param_hint="--policy"
        )
    return Policy.PLAIN if no_speculation else policy or Policy.SSR


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The prediction {path} can't be read: {error}") from error


def _settings(**given: int | None) -> EngineSettings:
    try:
        return EngineSettings.model_validate(given)
    except ValidationError as error:
        raise InvalidRequest(describe(error)) from error


# Loading


@contextmanager
def loaded_engine(model: str | None, settings: EngineSettings, err: Console) -> Iterator[Engine]:
    """The engine for what the user asked for, with everything said that takes long or surprises.

    Raises:
        SSRError: the model is not here, damaged, or can't be run.
    """
    from ssr_local.default_model import prepare

    with ExitStack() as stack:
        resolved = prepare(
            model,
            notify=lambda message: err.print(Text(message, DIM), soft_wrap=True),
            on_progress=_bar_when_needed(stack),
        )
    from ssr_local.engine import Engine

    note = LoadingNote(resolved.name, err)
    with note, _interrupt_exits(err):
        engine = Engine(resolved, settings, note.progress)
    with engine:
        yield engine


def _bar_when_needed(stack: ExitStack) -> Callable[[Progress], None]:
    """A download's progress bar that is not there when nothing is downloaded."""
    from ssr_local.cli_tables import progress_bar

    bars: list[Callable[[Progress], None]] = []

    def report(progress: Progress) -> None:
        if not bars:
            bars.append(stack.enter_context(progress_bar()))
        bars[0](progress)

    return report


class LoadingNote:
    """Says that a model is being loaded, if that takes longer than `PATIENCE`."""

    def __init__(self, name: str, console: Console) -> None:
        self._name, self._console = name, console
        self._timer = threading.Timer(PATIENCE, self._begin)
        self._status: Status | None = None
        self._share = 0.0

    def progress(self, share: float) -> None:
        """Called by the loader, with the share of the weights that is loaded."""
        self._share = share
        if self._status:
            self._status.update(str(self))

    def __str__(self) -> str:
        return f"loading {self._name}… {self._share:.0%}"

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._status:
            self._status.stop()

    def _begin(self) -> None:
        if self._console.is_terminal:
            self._status = self._console.status(str(self))
            self._status.start()
        else:
            self._console.print(f"loading {self._name}…")


# Running


def _run(
    engine: Engine,
    request: Request,
    show: Callable[[Generation], Finished],
    stats: bool,
    err: Console,
) -> None:
    with engine.submit(request) as generation, _interrupt_cancels(generation, err) as interrupted:
        finished = show(generation)
    if stats:
        err.print(stats_table(finished))
    if interrupted.is_set():
        raise typer.Exit(INTERRUPTED)


def _run_json(generation: Generation, request: Request, out: Console, err: Console) -> Finished:
    events = list(generation)
    document = completion_as_json(collect(events))
    print(json.dumps(document, ensure_ascii=False), file=out.file, flush=True)
    finished = events[-1]
    assert isinstance(finished, Finished)
    return finished


def _run_streaming(
    generation: Generation, request: Request, out: Console, err: Console
) -> Finished:
    with TerminalView(out, err, legend=request.policy is not Policy.PLAIN) as view:
        for event in generation:
            view.show(event)
    if isinstance(event, Failed):
        raise event.error
    assert isinstance(event, Finished)
    return event


# Ctrl-C


@contextmanager
def _on_interrupt(handler: Callable[[], None]) -> Iterator[None]:
    """Handle Ctrl-C; only the main thread can, elsewhere this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupt_exits(err: Console) -> Iterator[None]:
    """llama.cpp can't be stopped by an exception while it loads, and there is nothing to save."""
    with _on_interrupt(lambda: _exit_now(err)):
        yield


@contextmanager
def _interrupt_cancels(generation: Generation, err: Console) -> Iterator[threading.Event]:
    """The first Ctrl-C cancels, the second exits. Yields whether there was one."""
    interrupted = threading.Event()

    def handle() -> None:
        if interrupted.is_set():
            _exit_now(err)
        interrupted.set()
        # On a thread, as this one may be holding a lock that the cancel needs.
        threading.Thread(target=generation.cancel, daemon=True).start()

    with _on_interrupt(handle):
        yield interrupted


def _exit_now(err: Console) -> None:
    err.show_cursor(True)
    os._exit(INTERRUPTED)
