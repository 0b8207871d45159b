"""Readers who stop early: the request is cancelled, and the engine works on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_ssr import ChatSSR

from ssr_local.engine import Engine
from ssr_local.errors import EngineClosed
from ssr_local.generation import Generation

PROMPT = ChatPromptTemplate([("human", "{x}")])
PATIENCE = 1.0
"""Seconds in which abandoned requests must be over."""


@pytest.fixture
def all_cancelled(engine: Engine, monkeypatch) -> Callable[[], bool]:
    """Whether every request that the engine got was cancelled, and is over soon.

    One that runs on ends with "length", when its context is full.
    """
    submitted: list[Generation] = []
    submit = engine.submit

    def remember(request) -> Generation:
        submitted.append(submit(request))
        return submitted[-1]

    def check() -> bool:
        before = time.perf_counter()
        reasons = {generation.result().finish_reason for generation in submitted}
        return reasons == {"cancelled"} and time.perf_counter() - before < PATIENCE

    monkeypatch.setattr(engine, "submit", remember)
    return check


def test_a_closed_stream_cancels(endless: ChatSSR, all_cancelled) -> None:
    stream = endless.stream("begin")
    assert next(stream).additional_kwargs
    stream.close()
    assert all_cancelled()


def test_leaving_the_loop_cancels(endless: ChatSSR, all_cancelled) -> None:
    for _ in endless.stream("begin"):
        break
    assert all_cancelled()


def test_leaving_the_loop_over_a_chain_cancels(endless: ChatSSR, all_cancelled) -> None:
    """With the model last. What comes behind it (a parser) is drained by LangChain itself."""
    for _ in (PROMPT | endless.bind(seed=1)).stream({"x": "begin"}):
        break
    assert all_cancelled()


async def test_leaving_an_async_loop_over_a_chain_cancels(endless: ChatSSR, all_cancelled) -> None:
    async for _ in (PROMPT | endless | StrOutputParser()).astream({"x": "begin"}):
        break
    await asyncio.sleep(0.05)
    assert all_cancelled()


async def test_leaving_an_async_loop_cancels(endless: ChatSSR, all_cancelled) -> None:
    async for _ in endless.astream("begin"):
        break
    await asyncio.sleep(0.05)  # the event loop closes the abandoned generator
    assert all_cancelled()


@pytest.mark.parametrize("way", ["ainvoke", "astream", "astream_events", "abatch"])
async def test_cancelling_the_task_cancels(endless: ChatSSR, all_cancelled, way: str) -> None:
    async def read() -> None:
        if way in ("ainvoke", "abatch"):
            await getattr(endless, way)("begin" if way == "ainvoke" else ["begin"] * 3)
        else:
            async for _ in getattr(endless, way)("begin"):
                pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0.1)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all_cancelled()


async def test_a_timeout_cancels(endless: ChatSSR, all_cancelled) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(endless.ainvoke("begin"), 0.1)
    assert all_cancelled()


async def test_the_event_loop_stays_free_while_the_model_works(llm: ChatSSR) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticking = asyncio.create_task(tick())
    await llm.ainvoke("begin", max_tokens=200)
    ticking.cancel()
    assert ticks > 5


def test_a_callback_that_raises_cancels(endless: ChatSSR, all_cancelled) -> None:
    class Refuses(BaseCallbackHandler):
        raise_error = True

        def on_llm_new_token(self, token: str, **_: Any) -> None:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        list(endless.stream("begin", config={"callbacks": [Refuses()]}))
    assert all_cancelled()


class Heard(BaseCallbackHandler):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.chunks: list[Any] = []
        self.ended: list[Any] = []

    def on_llm_new_token(self, token: str, *, chunk: Any = None, **_: Any) -> None:
        assert token == chunk.text
        self.chunks.append(chunk.message)

    def on_llm_end(self, response: Any, **_: Any) -> None:
        self.ended.append(response.generations[0][0].message)


async def test_callbacks_hear_every_chunk_once(llm: ChatSSR) -> None:
    for streaming in (llm.stream, llm.astream):
        heard = Heard()
        stream = streaming("begin", config={"callbacks": [heard]})
        chunks = list(stream) if streaming == llm.stream else [chunk async for chunk in stream]
        assert heard.chunks == chunks
        assert heard.ended[0].content == "".join(chunk.content for chunk in chunks)


def test_invoke_with_streaming_tells_callbacks_too(llm: ChatSSR) -> None:
    heard = Heard()
    told = llm.model_copy(update={"streaming": True})
    reply = told.invoke("begin", config={"callbacks": [heard]})
    assert "".join(chunk.content for chunk in heard.chunks) == reply.content


def test_the_engine_works_on_after_a_cancel(endless: ChatSSR) -> None:
    stream = endless.stream("begin")
    next(stream)
    stream.close()
    assert endless.invoke("begin", max_tokens=3).usage_metadata["output_tokens"] == 3


def test_an_engine_closed_in_mid_stream_says_so(engine: Engine) -> None:
    own = Engine.load(engine.info.path, engine.settings)
    stream = ChatSSR(engine=own).stream("begin")
    next(stream)
    threading.Timer(0.05, own.close).start()
    with pytest.raises(EngineClosed):
        list(stream)
    started = time.perf_counter()
    with pytest.raises(EngineClosed):
        ChatSSR(engine=own).invoke("begin")
    assert time.perf_counter() - started < PATIENCE
