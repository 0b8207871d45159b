"""What a person sees and does in the window, on an engine that follows a script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ssr_local.errors import BackendError, ContextOverflow
from ssr_local.events import Event, Failed, Origin, ThinkingEnded
from ssr_local.request import Policy, Request, Thinking
from ui.conftest import Window, opened, serving
from ui.scripted_engine import (
    INFO,
    NOWHERE,
    ScriptedEngine,
    answering,
    drafting,
    finished,
    reading,
    saying,
    thinking,
)

LONG = ["still"] * 2000
HOSTILE = """<script>document.title = "hacked"</script>
<img src="https://example.com/x.png" onerror="document.title = 'hacked'">
[click](javascript:document.title='hacked') ![pixel](https://example.com/pixel.png)

```html
</code></pre><script>document.title = "hacked"</script>
```
"""


def thinking_for_ever(_request: Request) -> Iterator[tuple[float, Event]]:
    yield from reading()
    yield from thinking(LONG[:10], 0.01)
    yield from drafting(0, 10, "A provisional answer")
    yield from thinking(LONG, 0.02)


def in_three_origins(_request: Request) -> Iterator[tuple[float, Event]]:
    yield from reading()
    yield from thinking(["Let", "me", "**think**"], 0.1)
    yield from drafting(0, 3, "Paris is *probably* the capital")
    yield from thinking(["more", "and", "more"], 0.2)
    yield 0.1, ThinkingEnded(**NOWHERE, tokens=6, reason="closed")
    runs = ("Paris is ", Origin.DRAFT), ("**the**", Origin.MODEL), (" capital", Origin.SUFFIX)
    yield from answering(*runs, delay=0.2)
    yield 0.0, finished(reasoning=6, answer=8, steps=2)


def test_a_turn_shows_thinking_then_draft_then_the_marked_answer(
    window: Window, scripted: ScriptedEngine
) -> None:
    scripted.script = in_three_origins
    window.ask("Capital of France?")
    assert window.text(".user") == "Capital of France?"
    assert "Thinking for" in window.text(".thought.live .title")
    assert window.text(".thought.live strong") == "think"
    assert "not final" in window.text(".ghost header")
    assert "Paris is probably" in window.text(".ghost .blocks")
    window.wait_phase("done")
    page = window.page
    assert window.text(".answer") == "Paris is the capital"
    assert page.locator(".ghost:visible").count() == 0
    assert page.locator(".thought[open]").count() == 0
    assert "Thought for" in window.text(".thought .title")
    assert page.inner_text(".answer .by-draft") == "Paris is"
    assert page.inner_text(".answer .by-suffix") == "capital"
    assert {"tokens/step", "accepted", "tokens"} <= set(window.text(".figures").split())
    page.click(".thought summary")
    assert "more and more" in window.text(".thought .blocks")


def underline(window: Window, mark: str) -> str:
    """The second cue besides the colour."""
    style = f"getComputedStyle(document.querySelector('.answer .by-{mark}'))"
    return str(window.page.evaluate(f"{style}.textDecorationStyle + {style}.textDecorationLine"))


def test_marks_differ_without_colour_and_can_be_switched_off_for_good(
    window: Window, scripted: ScriptedEngine
) -> None:
    scripted.script = in_three_origins
    window.ask("Capital?")
    window.wait_phase("done")
    assert underline(window, "draft") == "solidunderline"
    assert underline(window, "suffix") == "dashedunderline"
    window.page.click(".legend .marks")
    assert underline(window, "draft") == underline(window, "suffix") == "solidnone"
    window.page.reload()
    assert window.see(".legend .marks").get_attribute("aria-pressed") == "false"


@pytest.mark.parametrize("how", ["button", "escape"])
def test_stop_stops_the_engine_and_keeps_what_was_written(
    window: Window, scripted: ScriptedEngine, how: str
) -> None:
    scripted.script = thinking_for_ever
    window.ask("Go on")
    window.see(".ghost .blocks")
    began = time.monotonic()
    if how == "button":
        window.page.click("#stop")
    else:
        window.page.keyboard.press("Escape")
    assert scripted.cut_short.wait(5)
    assert time.monotonic() - began < 1  # 0.1 s where the machine has nothing else to do
    window.wait_phase("done")
    assert window.text(".notice") == "Stopped"
    assert "Thought for" in window.text(".thought .title")
    window.see("#send")


def test_closing_the_tab_stops_the_engine(window: Window, scripted: ScriptedEngine) -> None:
    scripted.script = thinking_for_ever
    window.ask("Go on")
    window.see(".thought.live")
    window.page.close()
    assert scripted.cut_short.wait(5)


def test_answer_now_ends_the_thinking(window: Window, scripted: ScriptedEngine) -> None:
    scripted.script = saying("Done.", thought=" ".join(LONG), delay=0.05)
    window.ask("Go on")
    window.see(".thought.live")
    window.see("#answer-now").click()
    window.wait_phase("done")
    assert window.text(".answer") == "Done."
    assert window.page.locator("#answer-now:visible").count() == 0


def test_text_of_model_and_user_is_inert(window: Window, scripted: ScriptedEngine) -> None:
    scripted.script = saying(HOSTILE, thought=HOSTILE)
    title = window.page.title()
    window.ask(HOSTILE)
    window.wait_phase("done")
    page = window.page
    assert page.locator("#transcript :is(script, img, iframe)").count() == 0
    assert page.locator("#transcript a[href^='javascript' i]").count() == 0
    assert page.locator("#transcript [onerror]").count() == 0
    assert page.title() == title
    assert "<script>" in window.text(".user")
    assert "<script>" in window.text(".answer")


def test_a_conversation_that_is_too_long_is_told_and_the_text_given_back(
    window: Window, scripted: ScriptedEngine
) -> None:
    scripted.refusal = ContextOverflow(9000, 8192)
    window.ask("A very long question")
    window.wait_phase("failed")
    assert "9000 tokens" in window.text(".error")
    assert window.page.input_value("#message textarea") == "A very long question"
    scripted.reset()
    window.page.press("#message textarea", "Enter")
    window.wait_phase("done")
    assert [m.content for m in scripted.requests[0].messages] == ["A very long question"]


def test_a_failure_in_the_middle_is_told_below_what_was_written(
    window: Window, scripted: ScriptedEngine
) -> None:
    def failing(_request: Request) -> Iterator[tuple[float, Event]]:
        yield from reading()
        yield from answering(("Half an", Origin.MODEL))
        yield 0.1, Failed(**NOWHERE, error=BackendError("llama.cpp ran out of `cells`"))

    scripted.script = failing
    window.ask("Hello")
    window.wait_phase("failed")
    assert window.text(".answer") == "Half an"
    assert "ran out of cells" in window.text(".error")


def test_a_second_turn_knows_the_first_and_a_new_chat_does_not(
    window: Window, scripted: ScriptedEngine
) -> None:
    scripted.script = saying("It is **Paris**.", thought="Easy enough")
    for question in ("Capital of France?", "And of Spain?"):
        window.ask(question)
        window.page.get_by_text(question).wait_for()
        window.wait_phase("done")
    assert window.page.locator(".exchange").count() == 2
    first, second, third = scripted.requests[-1].messages
    assert (first.content, third.content) == ("Capital of France?", "And of Spain?")
    assert (second.content, second.reasoning) == ("It is **Paris**.", "Easy enough ")
    window.page.click("#new-chat")
    window.see(".welcome")
    window.ask("Hello")
    window.wait_phase("done")
    assert [m.content for m in scripted.requests[-1].messages] == ["Hello"]


def test_a_new_chat_ends_what_runs(window: Window, scripted: ScriptedEngine) -> None:
    scripted.script = thinking_for_ever
    window.ask("Go on")
    window.see(".thought.live")
    window.page.click("#new-chat")
    assert scripted.cut_short.wait(5)
    window.see(".welcome")


def test_tabs_of_one_browser_have_conversations_of_their_own(
    window: Window, scripted: ScriptedEngine
) -> None:
    """Three, because browsers open few connections to a server, for all tabs together."""
    scripted.script = saying("Fine.", thought=" ".join(LONG[:40]), delay=0.03)
    tabs = [window, window.another(), window.another()]
    for number, tab in enumerate(tabs):
        tab.ask(f"From tab {number}")
        tab.see(".thought.live")
    for number, tab in enumerate(tabs):
        tab.wait_phase("done")
        assert tab.page.locator(".user").all_inner_texts() == [f"From tab {number}"]
        assert tab.text(".answer") == "Fine."


def test_the_model_can_be_changed(browser: Any) -> None:
    old = ScriptedEngine(saying("Old."))
    new = ScriptedEngine(saying("New."), replace(INFO, name="another", n_ctx=1234))
    engines = {None: old, "another": new}
    with serving(engines.__getitem__, ["another"]) as url, opened(browser, url) as tab:
        assert tab.page.input_value("#model input") == "scripted"
        choose(tab, "model", "another")
        tab.page.get_by_text("1,234 tokens of context").wait_for()
        tab.ask("Hello")
        tab.wait_phase("done")
        assert tab.text(".answer") == "New."
        assert tab.page.input_value("#model input") == "another"
        assert old.closed


def choose(window: Window, box: str, option: str) -> None:
    window.page.click(f"#{box} input")
    window.page.get_by_role("option", name=option, exact=True).click()


def test_controls_reach_the_request(window: Window, scripted: ScriptedEngine) -> None:
    choose(window, "thinking", "Thinking: off")
    choose(window, "policy", "Speculation: lookup")
    window.page.click("#settings > button")
    for field, value in {
        "temperature": "0.5",
        "top-p": "0.9",
        "seed": "7",
        "max-tokens": "99",
    }.items():
        window.page.fill(f"#{field} :is(input, textarea)", value)
    window.page.fill("#budget input[type=number]", "320")
    window.ask("Hello")
    window.wait_phase("done")
    request = scripted.requests[-1]
    assert (request.thinking, request.policy) == (Thinking.OFF, Policy.LOOKUP)
    assert (request.thinking_budget, request.max_tokens) == (320, 99)
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.9, 7)


def test_an_impossible_setting_is_named(window: Window, scripted: ScriptedEngine) -> None:
    window.page.click("#settings > button")
    window.page.fill("#temperature :is(input, textarea)", "hot")
    window.ask("Hello")
    window.wait_phase("failed")
    assert "temperature" in window.text(".error")
    assert window.page.input_value("#message textarea") == "Hello"
    assert not scripted.requests


def test_an_example_fills_the_box(window: Window, scripted: ScriptedEngine) -> None:
    window.page.click(".examples button >> nth=0")
    window.page.press("#message textarea", "Enter")
    window.wait_phase("done")
    assert "palindrome" in scripted.requests[-1].messages[-1].content


def background(window: Window) -> str:
    return str(window.page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_light_and_dark(window: Window) -> None:
    light = background(window)
    window.page.click(".legend .theme")
    dark = background(window)
    assert dark != light
    window.page.reload()
    window.see("#status .ready")
    assert background(window) == dark


def test_a_narrow_screen_holds_everything(
    browser: Any, scripted: ScriptedEngine, scripted_url: str
) -> None:
    scripted.reset()
    scripted.script = in_three_origins
    with opened(browser, scripted_url, viewport={"width": 400, "height": 800}) as tab:
        tab.ask("A_long_word_" * 20)
        tab.wait_phase("done")
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 400
        assert tab.see("#composer").bounding_box()["height"] < 250
