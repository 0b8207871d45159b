"""What comes out: reasoning, usage and stats, the same in one message as in the sum of chunks."""

from __future__ import annotations

import json
from functools import reduce
from operator import add

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_ssr import ChatSSR
from langchain_ssr.replies import chunk_of

from ssr_local.errors import BackendError
from ssr_local.events import AnswerDelta, DraftDelta, Failed, Origin, ReasoningDelta

OF_EVENT = {"request_id": "request-1", "time": 0.0}


def without_stats(message) -> dict:
    """A message's content without what differs from run to run."""
    fields = message.model_dump(exclude={"id", "type", "chunk_position", "tool_call_chunks"})
    del fields["response_metadata"]["ssr"], fields["usage_metadata"]["input_token_details"]
    return fields


def test_chunks_add_up_to_the_message_of_invoke(llm: ChatSSR) -> None:
    merged = reduce(add, llm.stream("begin"))
    assert isinstance(merged, AIMessageChunk)
    assert without_stats(merged) == without_stats(llm.invoke("begin"))
    assert merged.content
    assert merged.additional_kwargs["reasoning_content"]


async def test_all_ways_to_ask_give_the_same(llm: ChatSSR) -> None:
    expected = without_stats(llm.invoke("begin"))
    chunks = [chunk async for chunk in llm.astream("begin")]
    assert without_stats(reduce(add, chunks)) == expected
    assert without_stats(await llm.ainvoke("begin")) == expected
    assert [without_stats(m) for m in llm.batch(["begin", "begin"])] == [expected] * 2
    assert [without_stats(m) for m in await llm.abatch(["begin"])] == [expected]


def test_reasoning_comes_before_the_answer_and_never_in_it(llm: ChatSSR) -> None:
    chunks = list(llm.stream("begin"))
    thinks = ["reasoning_content" in chunk.additional_kwargs for chunk in chunks]
    assert thinks == sorted(thinks, reverse=True)
    assert not any(chunk.content for chunk in chunks if chunk.additional_kwargs)
    thoughts = "".join(chunk.additional_kwargs.get("reasoning_content", "") for chunk in chunks)
    assert thoughts == llm.invoke("begin").additional_kwargs["reasoning_content"]


def test_standard_content_blocks_are_reasoning_and_text(llm: ChatSSR) -> None:
    for message in (llm.invoke("begin"), reduce(add, llm.stream("begin"))):
        thought = message.additional_kwargs["reasoning_content"]
        assert message.content_blocks == [
            {"type": "reasoning", "reasoning": thought},
            {"type": "text", "text": message.content},
        ]


def test_output_version_v1_puts_the_blocks_into_the_content(llm: ChatSSR) -> None:
    message = llm.model_copy(update={"output_version": "v1"}).invoke("begin")
    assert [block["type"] for block in message.content] == ["reasoning", "text"]


def test_no_reasoning_no_trace_of_it(llm: ChatSSR) -> None:
    message = llm.invoke("begin", thinking="off")
    assert message.additional_kwargs == {}
    assert [block["type"] for block in message.content_blocks] == ["text"]


def test_usage_adds_up_and_comes_once(llm: ChatSSR) -> None:
    chunks = list(llm.stream("begin"))
    assert [bool(chunk.usage_metadata) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    usage = chunks[-1].usage_metadata
    assert usage["output_tokens"] == 32
    assert usage["output_token_details"] == {"reasoning": 8}
    assert usage["total_tokens"] == usage["input_tokens"] + 32


def test_a_repeated_prompt_is_read_from_the_cache(llm: ChatSSR) -> None:
    llm.invoke("begin")
    usage = llm.invoke("begin").usage_metadata
    assert 0 < usage["input_token_details"]["cache_read"] < usage["input_tokens"]


def test_metadata_says_how_it_ended_and_what_speculation_did(llm: ChatSSR) -> None:
    for message in (llm.invoke("begin"), reduce(add, llm.stream("begin"))):
        metadata = message.response_metadata
        assert metadata["finish_reason"] == "length"
        assert metadata["model_provider"] == "ssr"
        assert metadata["model_name"] == llm.engine.info.name
        stats = metadata["ssr"]
        assert stats["accepted_draft"] + stats["accepted_suffix"] + stats["from_model"] == 24
        json.dumps(metadata)


def test_drafts_are_no_output() -> None:
    assert chunk_of(DraftDelta(**OF_EVENT, draft=0, text="perhaps", tokens=1), "tiny") is None


@pytest.mark.parametrize(
    "event",
    [
        ReasoningDelta(**OF_EVENT, text="", tokens=1),
        AnswerDelta(**OF_EVENT, text="", tokens=1, origin=Origin.MODEL),
    ],
)
def test_a_delta_without_text_makes_no_chunk(event) -> None:
    assert chunk_of(event, "tiny") is None


def test_a_failed_request_raises_its_error() -> None:
    with pytest.raises(BackendError, match="no memory"):
        chunk_of(Failed(**OF_EVENT, error=BackendError("no memory")), "tiny")
