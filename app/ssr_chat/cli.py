"""`ssr-chat`: start the window, say where it is, and end it cleanly."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from ssr_chat.network import credentials, free_port
from ssr_local.errors import SSRError

if TYPE_CHECKING:
    from ssr_chat.host import EngineHost

DEFAULT_PORT = 7860
console = Console(stderr=True, highlight=False)

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A name from `ssr models list`, or the path of a .gguf file. Left out: the best model "
        "that is on this machine, else a tiny demonstration model.",
        show_default=False,
    ),
]
Port = Annotated[int, typer.Option(min=1, max=65535, help="If taken, the next free one is used.")]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the window in a browser.")]
Host = Annotated[
    str,
    typer.Option(help="Address to listen on. Anything but this machine's own needs --auth."),
]
Auth = Annotated[
    str | None,
    typer.Option(metavar="USER:PASSWORD", help="Ask for this before showing the window."),
]
Context = Annotated[
    int | None,
    typer.Option(
        min=128,
        help="Tokens that a conversation may hold. Left out: what the model was trained for, up "
        "to 16,384 and to what fits in memory.",
        show_default=False,
    ),
]


@app.command(epilog="Example: `ssr-chat --model qwen3-4b --no-open`")
def chat(
    model: Model = None,
    port: Port = DEFAULT_PORT,
    open_window: Open = True,
    host: Host = "127.0.0.1",
    auth: Auth = None,
    n_ctx: Context = None,
) -> None:
    """Chat with a local reasoning model, and watch it speculate.

    The window shows the thinking, the draft answer that is written beside it, and which tokens of
    the final answer the draft had right. It runs on this machine alone and needs no network; end
    it with Ctrl-C. Models are fetched with `ssr models pull NAME`.
    """
    try:
        login = credentials(host, auth)
        chosen = free_port(host, port)
    except SSRError as error:
        console.print(f"[red]{error}[/]", soft_wrap=True)
        raise typer.Exit(2) from error
    if chosen != port:
        console.print(f"Port {port} is taken; using {chosen}.")
    _serve(model, n_ctx, host, chosen, login, open_window)


def main() -> None:
    """The entry point."""
    app()


def _serve(
    model: str | None,
    n_ctx: int | None,
    address: str,
    port: int,
    login: tuple[str, str] | None,
    open_window: bool,
) -> None:
    console.print("Starting the window…")
    # Slow imports come after the options were checked.
    from ssr_chat.catalogue import present_models
    from ssr_chat.host import EngineHost, engine_loader
    from ssr_chat.page import build_page
    from ssr_local.settings import EngineSettings

    host = EngineHost(engine_loader(EngineSettings(n_ctx=n_ctx)))
    host.switch(model)
    page = build_page(host, present_models)
    try:
        page.launch(
            server_name=address,
            server_port=port,
            auth=login,
            inbrowser=open_window and _can_open_a_browser(),
            **launch_options(),
        )
        console.print(f"The window is at [bold]http://{_visible(address)}:{port}[/]")
        _report_loading(host)
        console.print("Ctrl-C ends it.")
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("Ending.")
    finally:
        host.close()
        page.close(verbose=False)


def launch_options() -> dict[str, Any]:
    """What every launch of the page needs: our look, and nothing that leaves this machine."""
    from ssr_chat.page import static
    from ssr_chat.theme import theme

    return {
        "theme": theme(),
        # Not `css`: Gradio would add a second copy of each rule that overrides the first.
        "head": f"<style>{static('chat.css')}</style>",
        "favicon_path": str(Path(__file__).parent / "static" / "favicon.svg"),
        "prevent_thread_lock": True,
        "quiet": True,
        "share": False,
        "ssr_mode": False,
        "run_history": False,
        "footer_links": [],
    }


def _report_loading(host: EngineHost) -> None:
    """Follow the first load in the terminal until it ends."""
    from ssr_chat.host import State

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %")
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        while (status := host.status).state is State.LOADING:
            share = status.share
            progress.update(
                task, description=status.doing, total=1.0 if share is not None else None
            )
            progress.update(task, completed=share or 0.0)
            threading.Event().wait(0.1)
    if status.note:
        console.print(status.note, soft_wrap=True)
    if status.error:
        console.print(f"[red]{status.error}[/]", soft_wrap=True)
    elif status.info:
        console.print(f"Loaded {status.info.name} ({status.info.n_ctx:,} tokens of context).")


def _visible(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _can_open_a_browser() -> bool:
    """On a Linux without a display, opening one would start a text browser in this terminal."""
    on_linux = sys.platform.startswith("linux")
    return not on_linux or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
