"""The window on a real engine with a tiny random model: what the page shows is what it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.engine_pool import EnginePool
from support.tiny_gguf import Character, tiny_model

from ssr_local.engine import Engine
from ssr_local.generation import Generation
from ssr_local.request import Request
from ssr_local.settings import EngineSettings
from ui.conftest import Window, opened, serving

TALKATIVE = Character(close_bias=-2.0, end_bias=-20.0)


class Lent:
    """An engine of the pool: the window may use it, but not close it."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.info, self.settings = engine, engine.info, engine.settings
        self.last: Generation | None = None

    def submit(self, request: Request) -> Generation:
        self.last = self.engine.submit(request)
        return self.last

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def lent(engines: EnginePool) -> Lent:
    """With room for a text that takes much longer than the tests."""
    model = tiny_model(character=TALKATIVE, n_ctx_train=32_768)
    return Lent(engines.get(model, EngineSettings.exact(n_ctx=32_768)))


@pytest.fixture(scope="module")
def url(lent: Lent) -> Iterator[str]:
    with serving(lambda _name: lent, []) as url:
        yield url


def set_up(tab: Window, *, budget: int, max_tokens: int) -> None:
    tab.page.click("#settings > button")
    tab.page.fill("#temperature :is(input, textarea)", "0")
    tab.page.fill("#budget input[type=number]", str(budget))
    tab.page.fill("#max-tokens :is(input, textarea)", str(max_tokens))


def test_two_turns_show_what_the_engine_writes(browser: Any, url: str, lent: Lent) -> None:
    with opened(browser, url) as tab:
        set_up(tab, budget=40, max_tokens=100)
        tab.ask("Hello")
        tab.wait_phase("done")
        assert "Ended by a limit" in tab.text(".notice")
        request = Request.of(
            "Hello", sampling={"temperature": 0}, thinking_budget=40, max_tokens=100
        )
        expected = lent.engine.generate(request)
        shown = "".join(tab.text(".answer").split())
        assert len(shown) > 20
        assert letters(shown) == letters(expected.answer)
        assert f"{expected.usage.completion_tokens}" in tab.text(".figures")
        tab.ask("And now?")
        tab.page.locator(".exchange >> nth=1").wait_for()
        tab.wait_phase("done")
        assert tab.page.locator(".exchange .answer").count() == 2


def letters(text: str) -> str:
    """What markdown leaves as it is."""
    return "".join(character for character in text if character.isalnum())


@pytest.mark.parametrize("how", ["stop", "closed tab"])
def test_the_engine_stops_at_once(browser: Any, url: str, lent: Lent, how: str) -> None:
    with opened(browser, url) as tab:
        set_up(tab, budget=8192, max_tokens=100_000)
        tab.ask("Hello")
        tab.wait_phase("thinking", "answering")
        if how == "stop":
            tab.page.click("#stop")
        else:
            tab.page.close()
        assert lent.last
        assert lent.last.result().finish_reason == "cancelled"
