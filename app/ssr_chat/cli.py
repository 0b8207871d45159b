"""`ssr-chat`: start the window, say where it is, and end it cleanly."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ssr_chat.network import credentials, ensure_free
from ssr_local.errors import InvalidRequest, SSRError

if TYPE_CHECKING:
    from ssr_chat.host import EngineHost
    from ssr_local.engine import ModelInfo

DEFAULT_PORT = 7860
INTERRUPTED = 130
"""Exit code after Ctrl-C while a model loads: 128 plus the signal's number, as shells have it."""
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
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")]
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
        ensure_free(host, port)
        _serve(model, n_ctx, host, port, login, open_window)
    except SSRError as error:
        console.print(f"[bold red]Error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(1) from error


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
    """Load the model while the page is built, announce the window, and wait for Ctrl-C."""
    console.print("Starting…")
    # Slow imports come after the options were checked.
    from ssr_chat.catalogue import present_models
    from ssr_chat.host import EngineHost, State, engine_loader
    from ssr_chat.loading import follow_loading
    from ssr_local.settings import EngineSettings

    host = EngineHost(engine_loader(EngineSettings(n_ctx=n_ctx)))
    try:
        host.switch(model)
        with _window(host, present_models, address, port, login) as url:
            try:
                _announce(follow_loading(host, console), url)
                if open_window and _can_open_a_browser():
                    webbrowser.open(url)
                threading.Event().wait()
            except KeyboardInterrupt:
                console.print("Ending.")
                raise
    except KeyboardInterrupt:
        if host.status.state is State.LOADING:
            os._exit(INTERRUPTED)  # llama.cpp can't be interrupted, and there is nothing to save
    finally:
        host.close()


def _announce(model: ModelInfo, url: str) -> None:
    console.print(
        f"{escape(model.name)} is loaded, with {model.n_ctx:,} tokens of context.\n"
        f"The window is at [bold]{url}[/] (Ctrl-C ends it)."
    )


@contextmanager
def _window(
    host: EngineHost,
    models: Callable[[], list[str]],
    address: str,
    port: int,
    login: tuple[str, str] | None,
) -> Iterator[str]:
    """Serve the page; yields its URL.

    Raises:
        InvalidRequest: another program took the port since it was looked at.
    """
    from ssr_chat.page import build_page

    page = build_page(host, models)
    try:
        page.launch(server_name=address, server_port=port, auth=login, **launch_options())
    except OSError as error:
        ensure_free(address, port)
        raise InvalidRequest(f"The window can't be served: {error}") from error
    try:
        yield f"http://{_visible(address)}:{port}"
    finally:
        host.close()  # ends the streams that the server would wait for
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


def _visible(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _can_open_a_browser() -> bool:
    """On a Linux without a display, opening one would start a text browser in this terminal."""
    on_linux = sys.platform.startswith("linux")
    return not on_linux or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
