"""What the engine says, as LangChain's messages and chunks. Pure.

One translation for all four ways to call a chat model: a chunk holds what its event brought, the
last one everything that is said once (usage, how it ended, speculation), so that chunks add up to
the message of an `invoke`.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from ssr_local.events import AnswerDelta, Event, Failed, Finished, ReasoningDelta, Usage
from ssr_local.generation import Completion
from ssr_local.report import stats_as_json

PROVIDER = "ssr"
_REASONING = "reasoning_content"
"""Where LangChain looks for reasoning to make a standard content block of."""
_BY_PROVIDER = {"model_provider": PROVIDER}
"""In every chunk: LangChain wants it in the first, and does not double it in a sum."""


def chunk_of(event: Event, model_name: str) -> ChatGenerationChunk | None:
    """The chunk that an event gives, if it gives one.

    Raises:
        SSRError: the event says that the request failed.
    """
    match event:
        case ReasoningDelta(text=text) if text:
            message = AIMessageChunk(content="", additional_kwargs={_REASONING: text})
        case AnswerDelta(text=text) if text:
            message = AIMessageChunk(content=text)
        case Finished():
            message = AIMessageChunk(
                content="",
                chunk_position="last",
                usage_metadata=usage_of(event.usage),
                response_metadata=_said_once(event, model_name),
            )
        case Failed(error=error):
            raise error
        case _:
            return None
    message.response_metadata |= _BY_PROVIDER
    return ChatGenerationChunk(message=message)


def result_of(completion: Completion, model_name: str) -> ChatResult:
    """The result of a call that does not stream."""
    message = AIMessage(
        content=completion.answer,
        additional_kwargs={_REASONING: completion.reasoning} if completion.reasoning else {},
        usage_metadata=usage_of(completion.usage),
        response_metadata=_said_once(completion, model_name) | _BY_PROVIDER,
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def usage_of(usage: Usage) -> UsageMetadata:
    """Token counts. What speculation proposed costs time, never tokens, and is in none of them."""
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.prompt_tokens_reused),
        output_token_details=OutputTokenDetails(reasoning=usage.reasoning_tokens),
    )


def _said_once(done: Finished | Completion, model_name: str) -> dict[str, Any]:
    stats = stats_as_json(done.stats)
    stats.pop("acceptance_lengths")  # one number per step: too much for a message that is kept
    return {"finish_reason": done.finish_reason, "model_name": model_name, PROVIDER: stats}
