"""Options: a call's come before the chat model's, a wrong one is an error that names it."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.load import dumpd, load
from langchain_core.messages import HumanMessage
from langchain_ssr import ChatSSR
from langchain_ssr.options import OF_CALLS, OF_ENGINE
from pydantic import ValidationError

from ssr_local.engine import Engine
from ssr_local.errors import ContextOverflow, InvalidRequest
from ssr_local.request import Policy, Request, Sampling, Thinking
from ssr_local.settings import EngineSettings

SAMPLED = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 3}


def request_of(llm: ChatSSR, stop: list[str] | None = None, **options) -> Request:
    return llm._request([HumanMessage("x")], stop, options)


# Which count


def test_every_field_reaches_the_request() -> None:
    sampling = {**SAMPLED, "repetition_penalty": 1.1}
    sampling |= {"presence_penalty": 0.2, "frequency_penalty": 0.3}
    rest = {"thinking": "off", "thinking_budget": 5, "max_tokens": 9, "stop": ["a"]}
    request = request_of(ChatSSR(**sampling, **rest, policy="lookup"))
    assert request.sampling == Sampling(**sampling)
    assert request.model_dump(include=rest.keys()) == rest
    assert request.policy is Policy.LOOKUP


def test_what_is_not_set_is_left_to_the_engine() -> None:
    request = request_of(ChatSSR())
    assert request.model_fields_set == {"messages", "sampling"}
    assert request.sampling.model_fields_set == set()


def test_the_options_of_a_call_come_first() -> None:
    llm = ChatSSR(temperature=0.5, stop=["a"], thinking="off")
    request = request_of(llm, ["b"], temperature=0.0, thinking="prompted")
    assert (request.sampling.temperature, request.stop) == (0.0, ["b"])
    assert request.thinking is Thinking.PROMPTED


def test_none_in_a_call_means_not_given() -> None:
    assert request_of(ChatSSR(max_tokens=7), max_tokens=None).max_tokens == 7


def test_calls_may_carry_what_a_chat_model_has_no_field_for() -> None:
    request = request_of(ChatSSR(), prediction="like this", logit_bias={5: -1.0})
    assert (request.prediction, request.sampling.logit_bias) == ("like this", {5: -1.0})


def test_bound_options_work_in_a_chain(llm: ChatSSR) -> None:
    reply = (llm.bind(max_tokens=10) | (lambda message: message)).invoke("begin")
    assert reply.usage_metadata["output_tokens"] == 10


@pytest.mark.parametrize("stream", [True, False])
def test_langchains_own_stream_option_is_not_ours(llm: ChatSSR, stream: bool) -> None:
    assert llm.invoke("begin", stream=stream).content


def test_a_stop_string_ends_the_answer(llm: ChatSSR) -> None:
    whole = llm.invoke("begin").content
    reply = llm.invoke("begin", stop=[whole[5:8]])
    assert reply.content == whole[: whole.index(whole[5:8])]
    assert reply.response_metadata["finish_reason"] == "stop"


@pytest.mark.parametrize("thinking", ["native", "off"])
def test_same_seed_same_text_whatever_speculates(engine: Engine, thinking: str) -> None:
    """SSR must also have speculated, or the comparison shows nothing."""
    llm = ChatSSR(engine=engine, **SAMPLED, thinking_budget=20, max_tokens=80, thinking=thinking)
    plain = llm.invoke("begin", policy="plain")
    ssr = reduce(add, llm.stream("begin", policy="ssr"))
    assert (ssr.content, ssr.additional_kwargs) == (plain.content, plain.additional_kwargs)
    assert plain.response_metadata["ssr"]["rows_proposed"] == 0
    assert ssr.response_metadata["ssr"]["rows_proposed"] > 0


# Errors


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"temprature": 1}, "Did you mean temperature"),
        ({"nonsense": 1}, "Calls take .*temperature"),
        ({"tools": []}, "can't call tools"),
        ({"model": "other"}, "make another ChatSSR"),
        ({"n_ctx": 4096}, "make another ChatSSR"),
        ({"temperature": -1}, "temperature"),
        ({"stop": ["you", ""]}, "stop"),
        ({"thinking": "hard"}, "thinking"),
        ({"timeout": 5}, "timeout: no such option"),
    ],
)
async def test_a_wrong_option_of_a_call_is_an_error(llm: ChatSSR, option: dict, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        llm.invoke("begin", **option)
    with pytest.raises(InvalidRequest, match=says):
        next(llm.stream("begin", **option))
    with pytest.raises(InvalidRequest, match=says):
        await llm.ainvoke("begin", **option)
    with pytest.raises(InvalidRequest, match=says):
        await anext(llm.astream("begin", **option))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"temprature": 1}, "temprature"),
        ({"timeout": 5}, "timeout"),
        ({"temperature": -1}, "temperature"),
        ({"n_ctx": 1}, "n_ctx"),
        ({"policy": "fast"}, "policy"),
        ({"stop": [""]}, "stop"),
    ],
)
def test_a_wrong_option_of_the_chat_model_is_found_at_once(option: dict, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ChatSSR(**option)


@pytest.mark.parametrize("option", [{"model": "qwen3-4b"}, {"n_ctx": 4096}])
def test_a_given_engine_and_options_for_another_one_contradict(engine: Engine, option) -> None:
    with pytest.raises(ValidationError, match="loaded already"):
        ChatSSR(engine=engine, **option)


async def test_overflow_is_langchains_error_and_ours(llm: ChatSSR) -> None:
    with pytest.raises(ContextOverflowError) as caught:
        llm.invoke("long " * 2000)
    assert isinstance(caught.value, ContextOverflow)
    assert caught.value.context_tokens == 2048
    with pytest.raises(ContextOverflowError):
        await anext(llm.astream("long " * 2000))


def test_what_is_not_there_yet_says_so(llm: ChatSSR) -> None:
    with pytest.raises(NotImplementedError, match="tools"):
        llm.bind_tools([])
    with pytest.raises(NotImplementedError, match="schema"):
        llm.with_structured_output({})


# What LangChain wants to know


def test_tracing_parameters_follow_the_call() -> None:
    llm = ChatSSR(model="/models/some.gguf", temperature=0.5, max_tokens=9, stop=["a"])
    params = llm._get_ls_params(stop=["b"], temperature=0.1)
    assert params == {
        "ls_provider": "ssr",
        "ls_model_name": "some",
        "ls_model_type": "chat",
        "ls_temperature": 0.1,
        "ls_max_tokens": 9,
        "ls_stop": ["b"],
    }


@pytest.mark.filterwarnings("ignore:The function `load` is in beta")
def test_serialising(engine: Engine, snapshot) -> None:
    """An engine is not part of it, but which model it ran is."""
    llm = ChatSSR(model="smollm2-135m", thinking="prompted", n_ctx=1024, stop=["a"], seed=3)
    assert dumpd(llm) == snapshot
    again = load(dumpd(llm), allowed_objects=[ChatSSR], valid_namespaces=["langchain_ssr"])
    assert again.asdict() == llm.asdict()
    kwargs = dumpd(ChatSSR(engine=engine, seed=3))["kwargs"]
    assert kwargs == {"model": str(engine.info.path), "seed": 3}


def test_a_path_may_be_a_path() -> None:
    assert ChatSSR(model=Path("some.gguf")).model == "some.gguf"


def test_tokens_are_the_models_own(llm: ChatSSR) -> None:
    assert llm.get_num_tokens("a\n\nb") == 3
    reply = llm.invoke("begin")
    counted = llm.get_num_tokens_from_messages([HumanMessage("begin")])
    assert counted == reply.usage_metadata["input_tokens"]


def test_a_conversation_over_the_context_can_still_be_counted(llm: ChatSSR) -> None:
    assert llm.get_num_tokens_from_messages([HumanMessage("long " * 2000)]) > 2048
    assert llm.get_num_tokens_from_messages([]) == 0


def test_options_and_fields_know_each_other() -> None:
    """Every option of a call has a field, but for the two that make sense in a call only."""
    assert OF_CALLS - set(ChatSSR.model_fields) == {"logit_bias", "prediction"}
    assert set(OF_ENGINE) <= set(ChatSSR.model_fields) & set(EngineSettings.model_fields)
