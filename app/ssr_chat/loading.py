"""The terminal's view on the host's first load: what is fetched and loaded, and how far it is."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ssr_chat.host import EngineHost, State
from ssr_local.engine import ModelInfo

POLL_SECONDS = 0.1


def follow_loading(host: EngineHost, console: Console) -> ModelInfo:
    """Show the load until it ends. Where nobody watches, each thing that is done is one line.

    Raises:
        SSRError: why there is no model.
    """
    status, said = host.status, ""
    with _bar(console) as bar:
        task = bar.add_task(status.doing, total=None)
        while status.state is State.LOADING:
            if not console.is_terminal and status.doing != said:
                said = status.doing
                console.print(f"{said}…", markup=False, soft_wrap=True)
            total = None if status.share is None else 1.0
            bar.update(task, description=status.doing, total=total, completed=status.share or 0.0)
            time.sleep(POLL_SECONDS)
            status = host.status
    if status.note:
        console.print(status.note, markup=False, soft_wrap=True)
    if status.error:
        raise status.error
    assert status.info
    return status.info


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
