"""Engines are loaded once, at first use, shared, and closed by the last of their users."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.runnables import ConfigurableField
from langchain_ssr import ChatSSR, chat_model, engines
from langchain_ssr.engines import SharedEngines
from tiny_chat import instruct, thinker

from ssr_local.engine import Engine
from ssr_local.errors import ModelNotFound
from ssr_local.registry import resolve

SMALL = {"n_ctx": 512, "threads": 1, "max_tokens": 5, "thinking": "off"}


@pytest.fixture
def loaded(monkeypatch) -> Iterator[list[Engine]]:
    """Every engine that is loaded for sharing; all are closed at the end."""
    found: list[Engine] = []

    def load(model, settings) -> Engine:
        time.sleep(0.05)  # so that threads which ask at the same time do meet
        found.append(Engine(model, settings))
        return found[-1]

    shared = SharedEngines(load)
    monkeypatch.setattr(chat_model, "SHARED", shared)
    yield found
    shared.close_all()


def is_open(engine: Engine) -> bool:
    return not engine._worker.closed


def test_nothing_is_loaded_before_the_first_call(loaded: list[Engine]) -> None:
    llm = ChatSSR(model=thinker(), **SMALL)
    assert repr(llm)
    assert llm._get_ls_params()
    assert loaded == []
    assert llm.invoke("x").content
    assert len(loaded) == 1


def test_the_same_model_and_settings_share_an_engine(loaded: list[Engine]) -> None:
    first, second = ChatSSR(model=thinker(), **SMALL), ChatSSR(model=str(thinker()), **SMALL)
    assert first._ready() is second._ready()
    assert len(loaded) == 1


def test_other_settings_or_another_model_do_not(loaded: list[Engine]) -> None:
    models = [
        ChatSSR(model=thinker(), **SMALL),
        ChatSSR(model=thinker(), **(SMALL | {"n_ctx": 1024})),
        ChatSSR(model=instruct(), **SMALL),
    ]
    assert len({llm._ready() for llm in models}) == len(loaded) == 3
    assert [llm._ready().info.n_ctx for llm in models] == [512, 1024, 512]


def test_threads_that_ask_at_once_load_once(loaded: list[Engine]) -> None:
    replies: list[str] = []

    def ask() -> None:
        replies.append(ChatSSR(model=thinker(), **SMALL, temperature=0).invoke("x").content)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 8
    assert len(set(replies)) == len(loaded) == 1


async def test_loading_leaves_the_event_loop_free(loaded: list[Engine]) -> None:
    llm = ChatSSR(model=thinker(), **SMALL)
    asking = asyncio.create_task(llm.ainvoke("x"))
    turns = 0
    while not loaded:
        turns += 1
        await asyncio.sleep(0.005)
    assert turns > 3
    assert (await asking).content


def test_the_last_user_closes_and_the_next_call_loads_again(loaded: list[Engine]) -> None:
    with ChatSSR(model=thinker(), **SMALL) as first:
        second = ChatSSR(model=thinker(), **SMALL)
        assert first._ready() is second._ready()
    assert is_open(loaded[0])
    second.close()
    second.close()
    assert not is_open(loaded[0])
    assert second.invoke("x").content
    assert len(loaded) == 2


def test_a_given_engine_is_the_callers_to_close(engine: Engine) -> None:
    with ChatSSR(engine=engine) as llm:
        llm.invoke("x", max_tokens=2)
    assert is_open(engine)


def test_a_forgotten_chat_model_keeps_its_engine_until_another_is_needed(
    loaded: list[Engine],
) -> None:
    """LangChain makes chat models for single calls; a cell of a notebook is run again."""
    for _ in range(3):
        ChatSSR(model=thinker(), **SMALL).invoke("x")
        gc.collect()
    assert len(loaded) == 1
    ChatSSR(model=instruct(), **SMALL).invoke("x")
    assert [is_open(engine) for engine in loaded] == [False, True]


def test_a_copy_with_other_settings_takes_nothing_from_the_original(loaded: list[Engine]) -> None:
    llm = ChatSSR(model=thinker(), **SMALL)
    longer = llm.model_copy(update={"n_ctx": 1024})
    for _ in range(2):
        assert llm._ready().info.n_ctx == 512
        assert longer._ready().info.n_ctx == 1024
    assert len(loaded) == 2


def test_a_changed_field_counts_from_the_next_call(loaded: list[Engine]) -> None:
    llm = ChatSSR(model=thinker(), **SMALL)
    llm.invoke("x")
    llm.n_ctx = 1024
    assert llm._ready().info.n_ctx == 1024
    assert [is_open(engine) for engine in loaded] == [False, True]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda llm: pickle.loads(pickle.dumps(llm))])
def test_a_loaded_chat_model_can_be_copied_and_pickled(loaded: list[Engine], duplicate) -> None:
    llm = ChatSSR(model=thinker(), **SMALL)
    llm.invoke("x")
    assert duplicate(llm)._ready() is llm._ready()


def test_configurable_fields_do_not_load_again(loaded: list[Engine]) -> None:
    llm = ChatSSR(model=thinker(), **SMALL)
    configurable = llm.configurable_fields(max_tokens=ConfigurableField(id="length"))
    for length in (2, 3):
        reply = configurable.invoke("x", config={"configurable": {"length": length}})
        assert reply.usage_metadata["output_tokens"] == length
    assert len(loaded) == 1


def test_no_model_named_means_the_default_one(loaded: list[Engine], monkeypatch, caplog) -> None:
    """And its message reaches whoever looks at the log."""

    def prepare(name, *, notify, on_progress):
        if name is None:
            notify("Using a tiny model.")
        return resolve(name or str(thinker()))

    monkeypatch.setattr(engines, "prepare", prepare)
    by_path, default = ChatSSR(model=thinker(), **SMALL), ChatSSR(**SMALL)
    assert by_path._ready() is default._ready()
    assert caplog.messages == ["Using a tiny model."]


def test_a_model_that_is_not_here_is_an_error_at_the_call(loaded: list[Engine]) -> None:
    llm = ChatSSR(model="no-such-model")
    with pytest.raises(ModelNotFound, match="no-such-model"):
        llm.invoke("x")


def test_the_end_of_the_program_closes_what_is_open() -> None:
    """In mid-stream, without a word on stderr and with exit code 0."""
    program = (
        "import sys; from langchain_ssr import ChatSSR\n"
        "stream = ChatSSR(model=sys.argv[1], n_ctx=2048, threads=1).stream('x')\n"
        "print(bool(next(stream)))"
    )
    command = [sys.executable, "-c", program, str(thinker())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_the_example_of_the_docs_runs(loaded: list[Engine], monkeypatch, capsys) -> None:
    """On a tiny model that thinks, in place of the one it names."""
    page = (Path(__file__).parents[2] / "docs" / "langchain.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.setattr(engines, "prepare", lambda *_, **__: resolve(str(thinker())))
    short = example.replace("thinking_budget=1000", "thinking_budget=8, max_tokens=20, n_ctx=512")
    exec(short, {})
    assert "'reasoning': 8" in capsys.readouterr().out
    assert [is_open(engine) for engine in loaded] == [False]
