"""The window in a real browser: a chromium of the system, and the app served by this process.

Browser and server live for one test module each: Playwright keeps an event loop running in this
thread, which tests of coroutines elsewhere could not share.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from ui.scripted_engine import ScriptedEngine, saying

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
PATIENCE_MS = 15_000
"""The longest that anything on the page may take; far more than it needs, for busy machines."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser is on this machine (looked for {', '.join(BROWSERS)})")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def serving(load: Callable[[str | None], Any], models: list[str]) -> Iterator[str]:
    """Serve the window on engines that `load` gives; yields the URL."""
    from ssr_chat.cli import launch_options
    from ssr_chat.host import EngineHost
    from ssr_chat.page import build_page

    host = EngineHost(lambda name, _hearing: load(name))
    host.switch(None)
    page = build_page(host, lambda: models)
    port = free_port()
    page.launch(server_name="127.0.0.1", server_port=port, **launch_options())
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        host.close()
        page.close(verbose=False)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Window:
    """One tab, and what it asked the network for."""

    page: Any
    requests: list[str]

    def open(self, url: str) -> None:
        self.page.goto(url)
        self.see("#status .ready")

    def another(self) -> Window:
        """One more tab in the same browser profile."""
        window = Window(self.page.context.new_page(), self.requests)
        window.open(self.page.url)
        return window

    def ask(self, text: str) -> None:
        self.page.fill("#message textarea", text)
        self.page.press("#message textarea", "Enter")

    def wait_phase(self, *phases: str) -> None:
        wanted = ", ".join(f'body[data-phase="{phase}"]' for phase in phases)
        self.page.wait_for_selector(wanted)

    def see(self, selector: str) -> Any:
        """The last element that matches, once it is visible."""
        found = self.page.locator(selector).last
        found.wait_for(state="visible")
        return found

    def text(self, selector: str) -> str:
        return str(self.see(selector).inner_text())


@contextmanager
def opened(browser: Any, url: str, **options: Any) -> Iterator[Window]:
    """The window in a fresh profile. No script may fail, and nothing may be fetched elsewhere."""
    context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
    context.set_default_timeout(PATIENCE_MS)
    requests: list[str] = []
    problems: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    context.on("weberror", lambda error: problems.append(str(error.error)))
    window = Window(context.new_page(), requests)
    window.open(url)
    yield window
    context.close()
    assert not problems
    assert not [request for request in requests if not is_local(request, url)]


def is_local(request: str, url: str) -> bool:
    return request.startswith((url, "data:", "blob:"))


@pytest.fixture(scope="module")
def scripted() -> ScriptedEngine:
    return ScriptedEngine(saying("Fine."))


@pytest.fixture(scope="module")
def scripted_url(scripted: ScriptedEngine) -> Iterator[str]:
    with serving(lambda _name: scripted, ["scripted", "another"]) as url:
        yield url


@pytest.fixture
def window(browser: Any, scripted: ScriptedEngine, scripted_url: str) -> Iterator[Window]:
    """A tab on the scripted engine, which has forgotten earlier tests."""
    scripted.reset()
    with opened(browser, scripted_url) as tab:
        yield tab
