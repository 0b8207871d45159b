"""`ssr`: the command line's entry point.

Commands that need much (downloads, llama.cpp) are loaded when they are called, so that help and
completion are quick.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import ssr_local
from ssr_local.cli_generate import EXAMPLES, generate

_ELSEWHERE = {
    "models": ("ssr_local.cli_models", "List, fetch, check and remove models."),
    "doctor": ("ssr_local.cli_models", "Report what this machine can run, and what to install."),
    "bench": ("ssr_local.cli_bench", "Measure what speculation brings on this machine."),
}
"""Commands that are loaded when called: their module, in which they have their own name, and the
line that the list of commands shows."""


class _LazyGroup(TyperGroup):
    """Puts the real command in the place of its stand-in as soon as it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in _ELSEWHERE:
            self.commands[args[0]] = _load(args[0])
        return super().resolve_command(ctx, args)


def _load(name: str) -> Any:
    found = getattr(importlib.import_module(_ELSEWHERE[name][0]), name)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name)(function)
    return typer.main.get_command(found)


app = typer.Typer(
    name="ssr",
    cls=_LazyGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Start with: ssr doctor, then: ssr chat, or: ssr generate "Why is the sky blue?"',
)
app.command(epilog=EXAMPLES)(generate)


def _stand_in() -> None:
    """Listed in the help; never run."""


for _name, (_module, _help) in _ELSEWHERE.items():
    app.command(_name, help=_help)(_stand_in)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def chat(context: typer.Context) -> None:
    """Open the chat window: the same as ssr-chat, and with its options (ssr chat --help)."""
    window = next(iter(entry_points(group="console_scripts", name="ssr-chat")), None)
    if window is None or importlib.util.find_spec("gradio") is None:
        print(
            "The chat window needs Gradio, which is not installed. To install it:\n"
            "  pip install 'ssr-local[app]'",
            file=sys.stderr,
        )
        raise typer.Exit(1)
    sys.argv = ["ssr-chat", *context.args]
    window.load()()


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ssr-local {ssr_local.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Local reasoning models that answer sooner: self-speculation over llama.cpp, lossless."""


def main() -> None:
    """The entry point of the `ssr` script."""
    app()
