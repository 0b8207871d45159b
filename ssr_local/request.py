"""What a user asks of an engine: messages, sampling, thinking, speculation.

Pydantic models, frozen, and strict about unknown fields: a misspelt option is an error and never
silently dropped. Defaults of None mean "what the model's makers recommend" (the registry), and the
engine fills them in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ssr_local.errors import InvalidRequest

Role = Literal["system", "user", "assistant", "tool"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Message(_Frozen):
    """One turn of a conversation. `reasoning` is what an assistant turn thought, if it is known;
    the model's template decides whether it is shown to the model again."""

    role: Role
    content: str
    reasoning: str | None = None


class Sampling(_Frozen):
    """How a token is chosen from the logits.

    Applied in this order, as transformers and vLLM do: logit bias and penalties, temperature,
    top-k, top-p, min-p. Temperature 0 is greedy. Presence and frequency penalties count the tokens
    generated in this request (OpenAI's definition); the repetition penalty counts the prompt too
    (CTRL, Keskar et al. 2019).
    """

    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[int, float] = {}
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    """Same seed, same text, whatever speculation does. None draws a fresh one."""


class Thinking(StrEnum):
    AUTO = "auto"
    """The model's own way: native where its template knows thinking, else off."""
    NATIVE = "native"
    PROMPTED = "prompted"
    """A first turn that only thinks, then a second that answers: for instruct models."""
    OFF = "off"


class Policy(StrEnum):
    PLAIN = "plain"
    """No speculation: one token a step."""
    PREFIX = "prefix"
    """Drafts beside thinking; only the draft's accepted prefix is used (the paper's baseline)."""
    LOOKUP = "lookup"
    """No drafts; suffix matches in prompt, CoT, answer and earlier answers."""
    SSR = "ssr"
    """Drafts and suffix cache."""


class Request(_Frozen):
    """One generation. `max_tokens` counts thinking and answer together, as OpenAI's
    max_completion_tokens does."""

    messages: Annotated[list[Message], Field(min_length=1)]
    sampling: Sampling = Sampling()
    thinking: Thinking = Thinking.AUTO
    thinking_budget: Annotated[int, Field(ge=0)] | None = None
    """Most CoT tokens; when they are spent the close is forced and the answer begins."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: list[str] = []
    """Texts that end the answer; they are not part of it. Not looked for in the reasoning."""
    policy: Policy = Policy.SSR
    prediction: str | None = None
    """Text that the answer is expected to resemble (the file being edited): it seeds speculation
    and never changes the answer."""

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, stop: list[str]) -> list[str]:
        if "" in stop:
            raise ValueError("an empty stop string would end every answer at once")
        return stop

    @classmethod
    def of(cls, prompt: str | list[Message], **fields: Any) -> Request:
        """Build a request from a user prompt or a conversation.

        Raises:
            InvalidRequest: a field is unknown or its value impossible; the message names it.
        """
        messages = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
        try:
            return cls(messages=messages, **fields)
        except ValidationError as error:
            raise InvalidRequest(describe(error)) from error


def describe(error: ValidationError) -> str:
    """One line for each thing that pydantic found wrong, led by the field's name."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'request'}: {item['msg']}"
        for item in error.errors(include_url=False)
    )
