"""What goes in: roles, content blocks, earlier reasoning, and what is refused."""

from __future__ import annotations

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_ssr import ChatSSR
from langchain_ssr.messages import engine_messages

from ssr_local.errors import InvalidRequest
from ssr_local.request import Message

CALL = {"name": "f", "args": {}, "id": "1"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (SystemMessage("x"), "system"),
        (HumanMessage("x"), "user"),
        (HumanMessage("x", name="somebody"), "user"),
        (AIMessage("x"), "assistant"),
        (AIMessageChunk("x"), "assistant"),
        (ChatMessage("x", role="developer"), "system"),
        (ChatMessage("x", role="user"), "user"),
        (ChatMessage("x", role="assistant"), "assistant"),
    ],
)
def test_every_role_has_its_counterpart(message, role: str) -> None:
    assert engine_messages([message]) == [Message(role=role, content="x")]


def test_text_blocks_are_joined() -> None:
    blocks = ["one", {"type": "text", "text": "two"}]
    prompt, answer = engine_messages([HumanMessage(blocks), AIMessage(blocks)])
    assert prompt.content == "one\ntwo"
    assert answer.content == "onetwo"


def test_an_empty_message_stays_a_message() -> None:
    assert engine_messages([AIMessage("")]) == [Message(role="assistant", content="")]


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("yes", additional_kwargs={"reasoning_content": "hm"}),
        AIMessage([{"type": "reasoning", "reasoning": "hm"}, "yes"]),
        AIMessage(
            [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}],
            response_metadata={"model_provider": "anthropic"},
        ),
    ],
    ids=["ours", "standard blocks", "another provider's"],
)
def test_earlier_reasoning_is_kept_apart(message: AIMessage) -> None:
    """A model switched in mid-conversation reads what another one wrote."""
    (answer,) = engine_messages([message])
    assert answer == Message(role="assistant", content="yes", reasoning="hm")


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (HumanMessage([IMAGE]), "image"),
        (HumanMessage([{"type": "input_audio", "input_audio": {}}]), "audio"),
        (HumanMessage([{"type": "hologram"}]), "hologram"),
        (HumanMessage([{"type": "reasoning", "reasoning": "x"}]), "reasoning"),
        (ToolMessage("x", tool_call_id="1"), "tool results"),
        (AIMessage("", tool_calls=[CALL]), "tool calls"),
        (ChatMessage("x", role="narrator"), "narrator"),
        (RemoveMessage("1"), "RemoveMessage"),
    ],
)
def test_what_the_model_can_not_be_shown_is_refused_by_name(message, names: str) -> None:
    with pytest.raises(InvalidRequest, match=names):
        engine_messages([message])


def test_a_reply_can_be_put_back_into_the_conversation(llm: ChatSSR) -> None:
    conversation = [HumanMessage("begin"), llm.invoke("begin"), HumanMessage("more")]
    reply = llm.invoke(conversation)
    assert reply.content
    assert reply.usage_metadata["input_token_details"]["cache_read"] > 0


def test_no_message_at_all_is_refused(llm: ChatSSR) -> None:
    with pytest.raises(InvalidRequest, match="messages"):
        llm.invoke([])
