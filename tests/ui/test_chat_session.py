"""A tab's session and the host of the engine, without a page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace

from ssr_chat.controls import Controls
from ssr_chat.conversation import Exchange
from ssr_chat.host import EngineHost, State, Status
from ssr_chat.host_view import banner_html, status_html
from ssr_chat.pacing import paced
from ssr_chat.reply import Phase
from ssr_chat.session import Session

from ssr_local.errors import ModelNotFound
from ssr_local.events import Event, ReasoningDelta
from ssr_local.registry import EMBEDDED
from ssr_local.request import Message, Policy
from ui.scripted_engine import INFO, NOWHERE, ScriptedEngine, saying

QUESTION = [Message(role="user", content="Hi")]
SLOW = saying("Fine.", thought="still " * 500, delay=0.01)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def last(updates: AsyncIterator[Exchange]) -> Exchange:
    return [exchange async for exchange in updates][-1]


async def hosting(engine: ScriptedEngine) -> EngineHost:
    host = EngineHost(lambda _name, _hearing: engine)
    host.switch(None)
    await until(lambda: host.status.state is State.READY)
    return host


async def test_a_session_answers_and_frees_the_host() -> None:
    host = await hosting(ScriptedEngine(saying("Fine.")))
    session = Session()
    exchange = await last(session.ask("Hi", Controls(), host))
    assert exchange.reply.phase is Phase.DONE
    assert exchange.reply.answer.text == "Fine."
    assert session.conversation.exchanges == [exchange]
    assert not session.running
    assert not host.busy


async def test_leaving_the_iteration_stops_the_engine() -> None:
    """As a closed tab does."""
    engine = ScriptedEngine(SLOW)
    host = await hosting(engine)
    async with aclosing(Session().ask("Hi", Controls(), host)) as updates:
        async for exchange in updates:
            if exchange.reply.phase is Phase.THINKING:
                break
    await until(engine.cut_short.is_set)
    assert not host.busy


async def test_a_message_waits_for_the_model_and_can_be_stopped_meanwhile() -> None:
    gate = threading.Event()

    def load(_name: object, hearing: object) -> ScriptedEngine:
        gate.wait(10)
        return ScriptedEngine(saying("Fine."))

    host = EngineHost(load)
    host.switch("big")
    session = Session()
    updates = session.ask("Hi", Controls(), host)
    exchange = await anext(updates)
    assert exchange.reply.waiting_for == "Loading big"
    session.stop()
    exchange = await last(updates)
    assert exchange.reply.stopped
    gate.set()
    await until(lambda: host.status.state is State.READY)
    exchange = await last(session.ask("Hi again", Controls(), host))
    assert exchange.reply.answer.text == "Fine."


async def test_a_model_that_can_not_be_loaded_is_told_to_the_asker_and_the_header() -> None:
    def load(name: str | None, _hearing: object) -> ScriptedEngine:
        raise ModelNotFound(f"No {name} here; `ssr models pull` gets one.")

    host = EngineHost(load)
    host.switch("big")
    await until(lambda: host.status.state is State.FAILED)
    exchange = await last(Session().ask("Hi", Controls(), host))
    assert exchange.reply.refused
    assert isinstance(exchange.reply.error, ModelNotFound)
    assert "No model is loaded" in status_html(host.status)
    assert "<code>ssr models pull</code>" in banner_html(host.status)


def test_what_the_default_model_has_to_tell_is_shown_for_the_tiny_one_only() -> None:
    status = Status(State.READY, note="Get one: `ssr models pull`.", info=INFO)
    assert banner_html(status) == ""
    tiny = replace(status, info=replace(INFO, name=EMBEDDED))
    assert "<code>ssr models pull</code>" in banner_html(tiny)


async def test_a_switch_waits_for_the_running_answer_and_closes_the_old_engine() -> None:
    old, new = ScriptedEngine(SLOW), ScriptedEngine(saying("New."))
    engines = iter([old, new])
    host = EngineHost(lambda _name, _hearing: next(engines))
    host.switch("old")
    await until(lambda: host.status.state is State.READY)
    generation = host.submit(Controls().request(QUESTION))
    host.switch("new")
    await asyncio.sleep(0.2)
    assert host.status.state is State.LOADING
    assert not old.closed
    host.release(generation)
    await until(lambda: host.status.state is State.READY)
    assert old.closed
    assert not new.closed


async def test_a_choice_that_is_reported_twice_is_loaded_once() -> None:
    loads: list[str | None] = []

    def load(name: str | None, _hearing: object) -> ScriptedEngine:
        loads.append(name)
        if len(loads) == 1:
            raise ModelNotFound("Not yet.")
        return ScriptedEngine(saying("Fine."))

    host = EngineHost(load)
    host.switch("big")
    await until(lambda: host.status.state is State.FAILED)
    for _ in range(3):  # a failed load may be tried again
        host.switch("big")
    await until(lambda: host.status.state is State.READY)
    host.switch("big")
    await asyncio.sleep(0.1)
    assert host.status.state is State.READY
    assert loads == ["big", "big"]


async def test_a_load_that_was_overtaken_is_dropped() -> None:
    slow, quick = ScriptedEngine(saying("slow")), ScriptedEngine(saying("quick"))
    gate = threading.Event()

    def load(name: str | None, _hearing: object) -> ScriptedEngine:
        if name == "slow":
            gate.wait(10)
            return slow
        return quick

    host = EngineHost(load)
    host.switch("slow")
    host.switch("quick")
    gate.set()
    await until(lambda: host.status.state is State.READY)
    exchange = await last(Session().ask("Hi", Controls(), host))
    assert exchange.reply.answer.text == "quick"
    assert slow.closed or not slow.requests


async def events(count: int) -> AsyncIterator[Event]:
    for number in range(count):
        yield ReasoningDelta(**NOWHERE, text=str(number), tokens=1)


async def test_pacing_loses_nothing_and_joins_what_comes_quickly() -> None:
    batches = [batch async for batch in paced(events(500), 0.01)]
    texts = [
        event.text for batch in batches for event in batch if isinstance(event, ReasoningDelta)
    ]
    assert texts == [str(number) for number in range(500)]
    assert len(batches) < 50


def test_controls_leave_to_the_makers_what_is_left_empty() -> None:
    request = Controls(policy="plain", temperature=" ", seed=None).request(QUESTION)
    assert request.policy is Policy.PLAIN
    assert request.sampling.temperature is None
    assert request.sampling.seed is None
