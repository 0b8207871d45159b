"""LangChain's own tests of chat models, as far as a text-only model goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_ssr import ChatSSR
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests
from tiny_chat import EXACT, LIMITS, instruct, thinker


class TextOnly:
    """What ChatSSR is, and what it can't do yet."""

    chat_model_class = ChatSSR
    has_tool_calling = False
    has_tool_choice = False
    has_structured_output = False
    supports_model_override = False


class TestUnit(TextOnly, ChatModelUnitTests):
    chat_model_params = {"model": "smollm2-135m"}  # noqa: RUF012

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        """Without those of a remote service (timeout, max_retries, api_key): here they are errors,
        as there is nothing that they could do."""
        return {"temperature": 0, "max_tokens": 100, "stop": []}

    @pytest.mark.xfail(
        reason="langchain-core's load(allowed_objects='all') means a list of packages "
        "that core itself keeps; test_serialising loads it by its class"
    )
    def test_serdes(self, model: Any, snapshot: Any) -> None:
        super().test_serdes(model, snapshot)


class TestNative(TextOnly, ChatModelIntegrationTests):
    thinking = "native"
    supported_usage_metadata_details = {  # noqa: RUF012
        "invoke": ["reasoning_output", "cache_read_input"],
        "stream": ["reasoning_output", "cache_read_input"],
    }

    def path(self) -> Path:
        return thinker()

    @pytest.fixture(autouse=True)
    def _engine(self, engines) -> None:
        self.engine = engines.get(self.path(), EXACT)

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"engine": self.engine, "thinking": self.thinking, **LIMITS}

    def invoke_with_reasoning_output(self, *, stream: bool = False) -> AIMessage:
        return ChatSSR(**self.chat_model_params, streaming=stream).invoke("Hello")

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        llm = ChatSSR(**self.chat_model_params, streaming=stream)
        return [llm.invoke("Hello") for _ in range(2)][-1]


class TestPrompted(TestNative):
    thinking = "prompted"

    def path(self) -> Path:
        return instruct()
