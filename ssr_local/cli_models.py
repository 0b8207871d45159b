"""`ssr models` and `ssr doctor`: a thin layer over the registry, downloads and the doctor."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ssr_local import doctor as doctor_report
from ssr_local import download, model_files
from ssr_local.cli_tables import errors_explained, human_size, print_table, progress_bar
from ssr_local.device import this_machine
from ssr_local.doctor import fit_in_words, model_as_json, report_on, size_of, state_in_words
from ssr_local.download import Progress
from ssr_local.errors import SSRError
from ssr_local.model_files import Status
from ssr_local.registry import Entry, Registry, models_dir, resolve

models = typer.Typer(
    name="models",
    no_args_is_help=True,
    help="List, fetch, check and remove models.",
    epilog="Example: ssr models pull qwen3-4b, then: ssr chat --model qwen3-4b",
)

Name = Annotated[str, typer.Argument(help="A name from `ssr models list`.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Here = Annotated[bool, typer.Option("--here", help="Only models that are on this machine.")]
Force = Annotated[bool, typer.Option("--force", help="Fetch it even if it is here and right.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]

_LEGEND = (
    "checked: weights = fetched and run by us; listed = name seen in public documentation; "
    "assumed = found by listing its repository; user = your own entry"
)


@models.command("list", epilog="Examples: ssr models list --here; ssr models list --json")
def list_models(as_json: AsJson = False, here: Here = False) -> None:
    """Show the models that SSR Local knows by name, what is here and what would fit."""
    with errors_explained():
        machine = this_machine()
        reports = [report_on(entry, machine) for entry in Registry.load().entries.values()]
        shown = [r for r in reports if not here or r.state.status is not Status.ABSENT]
        if as_json:
            print(json.dumps([model_as_json(report) for report in shown], indent=2))
            return
        print_table(
            f"Models (in {models_dir()})",
            ("name", "size", "license", "reasoning", "state", "fits", "checked"),
            [
                (
                    report.entry.name,
                    size_of(report),
                    report.entry.license,
                    report.entry.profile.value,
                    state_in_words(report.state),
                    fit_in_words(report),
                    report.entry.checked.value,
                )
                for report in shown
            ],
        )
        print(_LEGEND)


@models.command(epilog="Example: ssr models pull qwen3-4b")
def pull(name: Name, force: Force = False) -> None:
    """Download a model, check it, and say how to use it. An interrupted download goes on."""
    with errors_explained():
        entry = Registry.load().get(name)
        with progress_bar() as on_progress:
            path = download.pull(entry, on_progress=on_progress, force=force)
        print(f"{entry.name} is at {path} ({human_size(path.stat().st_size)}).")
        print(f"Use it with: ssr chat --model {entry.name}")


@models.command(epilog='Example: llama-cli -m "$(ssr models path qwen3-4b)"')
def path(name: Name) -> None:
    """Print the path of a model that is here, and check it on the way."""
    with errors_explained():
        print(resolve(name).path)


@models.command(epilog="Examples: ssr models verify; ssr models verify qwen3-4b")
def verify(
    name: Annotated[
        str | None, typer.Argument(help="One model; all that are here if left out.")
    ] = None,
) -> None:
    """Read model files in full again: header, size and sha256."""
    with errors_explained():
        registry = Registry.load()
        chosen = [registry.get(name)] if name else _here(registry)
        if not chosen:
            print("No models are here yet. `ssr models list` shows what there is.")
        results = [_verify_one(entry, entry.sha256 is not None) for entry in chosen]
        if not all(results):
            raise typer.Exit(1)


@models.command(epilog="Example: ssr models rm qwen3-4b --yes")
def rm(name: Name, yes: Yes = False) -> None:
    """Delete a model's file, and what is left of unfinished downloads of it."""
    with errors_explained():
        entry = Registry.load().get(name)
        if model_files.file_state(entry).status is Status.ABSENT:
            print(f"{entry.name} is not here.")
            return
        if not yes:
            typer.confirm(f"Delete {entry.name} from {models_dir()}?", abort=True)
        print(f"Removed {entry.name}: {human_size(model_files.remove(entry))} freed.")


def doctor(as_json: AsJson = False) -> None:
    """Report what this machine can run, which models are here, and what to install.

    Example: ssr doctor --json
    """
    with errors_explained():
        report = doctor_report.examine(Registry.load())
        if as_json:
            print(json.dumps(doctor_report.as_json(report), indent=2))
        else:
            doctor_report.show(report)


def _here(registry: Registry) -> list[Entry]:
    return [entry for entry in registry.entries.values() if entry.path.is_file()]


def _verify_one(entry: Entry, known: bool) -> bool:
    """Print the verdict on one model; whether it is sound."""
    try:
        with progress_bar() as on_progress:
            size = entry.path.stat().st_size if entry.path.is_file() else None
            found = model_files.verify(
                entry, lambda done: on_progress(Progress(done, size, f"reading {entry.name}"))
            )
    except SSRError as error:
        print(f"{entry.name}: WRONG. {error}")
        return False
    told = "is right" if known else "noted (the registry knows none to compare with)"
    print(f"{entry.name}: sound, sha256 {found} {told}")
    return True
