"""ChatSSR, the chat model: its options, its life, and the four ways to call it.

What options mean is `options`' matter, messages in `messages`', messages out `replies`', and which
engine runs it `engines`'.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from langchain_ssr.engines import SHARED, Lease, Wanted
from langchain_ssr.errors import overflow_in_both_trees
from langchain_ssr.messages import NO_TOOLS
from langchain_ssr.options import OF_CALLS, OF_ENGINE, engine_request, engine_settings
from langchain_ssr.replies import PROVIDER, chunk_of, result_of
from ssr_local.engine import Engine
from ssr_local.errors import ContextOverflow, InvalidRequest
from ssr_local.generation import Generation
from ssr_local.registry import looks_like_path
from ssr_local.request import Policy, Request, Thinking
from ssr_local.settings import KVType


class ChatSSR(BaseChatModel):
    """A local reasoning model that drafts its answer while it thinks.

        from langchain_ssr import ChatSSR

        llm = ChatSSR(model="qwen3-4b", thinking_budget=1000)

        reply = llm.invoke("Why is the sky blue?")
        print(reply.additional_kwargs["reasoning_content"])
        print(reply.content)

        for chunk in llm.stream("And at sunset?", temperature=0.2, seed=7):
            print(chunk.text, end="", flush=True)

    The model is loaded at the first call and shared by all ChatSSR objects that ask for the same
    model and set-up. It stays until the last of them is closed (`close`, or a `with` block), or the
    program ends.

    Options left out are as the model's makers recommend. Each call may set those of sampling and
    thinking anew, and two more: `logit_bias` (by token id), and `prediction`, a text that the
    answer will resemble, which only makes it faster. `policy` says how to speculate; but for
    rounding (docs/lossless.md) it changes nothing in the text.

    What went on is in `response_metadata["ssr"]` of every reply: steps, drafts, what was accepted,
    seconds by phase. Errors are those of `ssr_local.errors`. Tools, structured output and images
    are refused for now.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, use_enum_values=True)

    model: str | None = None
    """Registry name or path of a GGUF file; None for the best one that is here."""
    engine: Engine | None = Field(default=None, exclude=True, repr=False)
    """An engine that is loaded already, in place of `model`. It stays the caller's to close."""

    n_ctx: int | None = None
    """Tokens that one call may hold: prompt, thinking and answer."""
    slots: int | None = None
    """Calls that run at the same time (for `batch` and `abatch`); others wait."""
    threads: int | None = None
    n_gpu_layers: int | None = None
    kv_type: KVType | None = None

    thinking: Thinking | None = None
    """auto (the default), native, prompted (for instruct models) or off."""
    thinking_budget: int | None = None
    """Most thinking tokens before the answer begins."""
    max_tokens: int | None = None
    """Most tokens, thinking and answer together."""
    stop: list[str] | None = None
    """Texts that end the answer."""
    policy: Policy | None = None
    """ssr (the default), lookup, prefix or plain: how to speculate."""
    temperature: float | None = None
    """0 is greedy."""
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    """Same seed, same text, whatever speculation does."""

    streaming: bool = False
    """Whether `invoke` streams to the callbacks."""

    _lease: Lease = PrivateAttr(default_factory=Lease)

    # Set-up

    @field_validator("model", mode="before")
    @classmethod
    def _path_as_text(cls, model: object) -> object:
        return os.fspath(model) if isinstance(model, os.PathLike) else model

    @model_validator(mode="after")
    def _possible(self) -> Self:
        """What can't work is an error here, and not at the first call."""
        ignored = [name for name in ("model", *OF_ENGINE) if getattr(self, name) is not None]
        if self.engine is not None and ignored:
            raise ValueError(f"{', '.join(ignored)}: the given engine is loaded already")
        try:
            engine_settings(self._own_options(OF_ENGINE))
            self._request([HumanMessage("")], None, {})
        except InvalidRequest as error:
            raise ValueError(str(error)) from error
        return self

    def _own_options(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    # Life

    def close(self) -> None:
        """Free the model, unless another ChatSSR uses it or it was given as `engine`.

        The next call loads it again.
        """
        SHARED.close(self._lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __copy__(self) -> Self:
        """A copy may be given other settings, so it holds an engine of its own account."""
        copied = super().__copy__()
        copied._lease = Lease()
        return copied

    def _wanted(self) -> Wanted:
        return Wanted(self.model, engine_settings(self._own_options(OF_ENGINE)))

    def _loaded(self) -> Engine | None:
        return self.engine or SHARED.held(self._lease, self._wanted())

    def _ready(self) -> Engine:
        return self.engine or SHARED.engine(self._lease, self._wanted())

    async def _aready(self) -> Engine:
        loaded = self._loaded()
        return loaded if loaded is not None else await asyncio.to_thread(self._ready)

    # Calls. Leaving the `with` ends the request, whatever the reason: an error, a cancelled task,
    # a reader who stopped reading.

    def _request(
        self, messages: list[BaseMessage], stop: list[str] | None, options: dict[str, Any]
    ) -> Request:
        # "stream" is BaseChatModel's own: it chose between _generate and _stream by it.
        given = {name: value for name, value in options.items() if name != "stream"}
        return engine_request(messages, self._own_options(_FIELDS_OF_CALLS), given | {"stop": stop})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        request, engine = self._request(messages, stop, options), self._ready()
        with _submit(engine, request) as generation:
            return result_of(generation.result(), engine.info.name)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        request, engine = self._request(messages, stop, options), await self._aready()
        with _submit(engine, request) as generation:
            return result_of(await generation.aresult(), engine.info.name)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> Iterator[ChatGenerationChunk]:
        request, engine = self._request(messages, stop, options), self._ready()
        with _submit(engine, request) as generation:
            for event in generation:
                if chunk := chunk_of(event, engine.info.name):
                    if run_manager:
                        run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        request, engine = self._request(messages, stop, options), await self._aready()
        with _submit(engine, request) as generation:
            async for event in generation:
                if chunk := chunk_of(event, engine.info.name):
                    if run_manager:
                        await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk

    # Counting tokens

    def get_token_ids(self, text: str) -> list[int]:
        """The model's own tokens of a text. Loads the model."""
        return self._ready().tokenize(text)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Length of the prompt that the conversation makes, template included. Loads the model."""
        if tools:
            raise NotImplementedError(f"{NO_TOOLS}.")
        if not messages:
            return 0
        request = self._request(messages, None, {})
        try:
            return self._ready().count_prompt_tokens(request)
        except ContextOverflow as error:
            return error.prompt_tokens

    # Not there yet

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Not implemented yet."""
        raise NotImplementedError(f"{NO_TOOLS}; bind_tools is planned for a later version.")

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """Not implemented yet."""
        raise NotImplementedError(
            "ChatSSR can't be held to a schema yet; with_structured_output is planned for a later "
            "version. Ask for JSON in the prompt, and parse it with an output parser."
        )

    # What LangChain wants to know

    @property
    def _llm_type(self) -> str:
        return PROVIDER

    @property
    def _model_name(self) -> str:
        if (engine := self._loaded()) is not None:
            return engine.info.name
        if self.model is not None and looks_like_path(self.model):
            return Path(self.model).stem
        return self.model or "default"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        options = self._own_options([*_FIELDS_OF_CALLS, *OF_ENGINE])
        given = {name: value for name, value in options.items() if value is not None}
        return {"model": self.model, **self.lc_attributes, **given}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        kwargs.setdefault("model", self._model_name)
        params = super()._get_ls_params(stop=stop or self.stop, **kwargs)
        params["ls_provider"] = PROVIDER
        return params

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return True

    @property
    def lc_attributes(self) -> dict[str, Any]:
        """A given engine is not part of what is serialised, but which model it runs is."""
        return {"model": str(self.engine.info.path)} if self.engine else {}


_FIELDS_OF_CALLS = [name for name in ChatSSR.model_fields if name in OF_CALLS]


def _submit(engine: Engine, request: Request) -> Generation:
    with overflow_in_both_trees():
        return engine.submit(request)
