"""How the command line shows tables, sizes and progress: rich on a terminal, else plain text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars
from rich.table import Table

from ssr_local.download import OnProgress, Progress
from ssr_local.errors import SSRError


def human_size(size: float) -> str:
    """Decimal, as shops and downloads have it: 98 MB, 2.5 GB."""
    if size >= 999.5e6:  # what would be rounded to 1000 MB
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB"


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A ruled table on a terminal; else aligned columns of full length, for grep and awk."""
    if sys.stdout.isatty():
        table = Table(title=title, title_justify="left", header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)
        return
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    print(title)
    for row in [columns, *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_error(message: str) -> None:
    """One message on stderr, without markup and unwrapped where nobody watches."""
    console = Console(stderr=True)
    if console.is_terminal:
        console.print(f"[bold red]Error:[/] {escape(message)}", highlight=False)
    else:
        print(f"Error: {message}", file=sys.stderr)


@contextmanager
def errors_explained() -> Iterator[None]:
    """An SSRError becomes its message on stderr and exit code 1, and so does a failure to read or
    write (a full disk); Ctrl-C exit code 130. A reader that went away is left to click, which ends
    the program in silence, as shells expect."""
    try:
        yield
    except SSRError as error:
        print_error(str(error))
        raise typer.Exit(1) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        print_error(f"Reading or writing failed: {error}")
        _abandon_stdout()
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        print_error("Interrupted.")
        raise typer.Exit(130) from None


def _abandon_stdout() -> None:
    """What stdout still buffers can't be written either; Python would try again at exit, and fail
    with a second message."""
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


@contextmanager
def progress_bar() -> Iterator[OnProgress]:
    """A callback for downloads: bars on a terminal, else a line for each tenth."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _in_tenths()
        return
    with Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as bars:
        task = bars.add_task("", total=None)

        def show(progress: Progress) -> None:
            bars.update(
                task,
                description=escape(progress.what),
                completed=progress.done_bytes,
                total=progress.total_bytes,
            )

        yield show


def _in_tenths() -> Callable[[Progress], None]:
    said: set[tuple[str, int]] = set()

    def say(progress: Progress) -> None:
        total = progress.total_bytes or 0
        tenth = 10 * progress.done_bytes // total if total else 0
        if (progress.what, tenth) not in said:
            said.add((progress.what, tenth))
            of = f" of {human_size(total)}" if total else ""
            print(f"{progress.what}: {human_size(progress.done_bytes)}{of}", file=sys.stderr)

    return say
