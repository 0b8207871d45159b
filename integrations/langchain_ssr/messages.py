"""LangChain's messages as the engine's. Pure.

Everything that the model can't be shown is refused with its name; the only thing left out is a
message's `name`, which chat templates have no place for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from ssr_local.errors import InvalidRequest
from ssr_local.request import Message, Role

_CHAT_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
}
"""What may stand in `ChatMessage.role`."""

NO_TOOLS = "ChatSSR can't call tools yet"


def engine_messages(messages: Sequence[BaseMessage]) -> list[Message]:
    """The conversation for a `Request`.

    Earlier answers keep their reasoning; the model's template decides whether it is shown again.

    Raises:
        InvalidRequest: a message holds what ChatSSR can't pass on.
    """
    return [_engine_message(message) for message in messages]


def _engine_message(message: BaseMessage) -> Message:
    role = _role(message)
    if isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
        raise InvalidRequest(f"{NO_TOOLS}, so a conversation can't hold earlier tool calls.")
    texts, thoughts = [], []
    for block in cast("list[dict[str, Any]]", message.content_blocks):
        if block["type"] == "text":
            texts.append(block.get("text", ""))
        elif block["type"] == "reasoning" and role == "assistant":
            thoughts.append(block.get("reasoning", ""))
        else:
            raise InvalidRequest(
                f"ChatSSR reads text only, but a message of the {role} holds a block of type "
                f"{_kind(block)!r}."
            )
    # Blocks of an answer are pieces of one text. In a prompt each is a text of its own, and is
    # joined as vLLM and llama.cpp do for templates that know only strings.
    text = ("" if role == "assistant" else "\n").join(texts)
    return Message(role=role, content=text, reasoning="".join(thoughts) or None)


def _role(message: BaseMessage) -> Role:
    match message:
        case SystemMessage():
            return "system"
        case HumanMessage():
            return "user"
        case AIMessage():
            return "assistant"
        case ChatMessage(role=role) if role in _CHAT_ROLES:
            return _CHAT_ROLES[role]
        case ChatMessage(role=role):
            raise InvalidRequest(f"role: {role!r} is not one of {', '.join(_CHAT_ROLES)}.")
        case ToolMessage() | FunctionMessage():
            raise InvalidRequest(f"{NO_TOOLS}, so a conversation can't hold tool results.")
    raise InvalidRequest(f"ChatSSR can't pass on a {type(message).__name__}.")


def _kind(block: dict[str, Any]) -> str:
    """A block's type; that of the provider where LangChain has none for it."""
    value = block.get("value")
    if block["type"] == "non_standard" and isinstance(value, dict):
        return str(value.get("type", "unknown"))
    return str(block["type"])
