"""Chat models over engines of the pool. Sharing and loading of engines is test_engines' matter."""

from __future__ import annotations

import pytest
from langchain_ssr import ChatSSR
from tiny_chat import EXACT, LIMITS, instruct, thinker

from ssr_local.engine import Engine


@pytest.fixture
def engine(engines) -> Engine:
    return engines.get(thinker(), EXACT)


@pytest.fixture(params=["native", "prompted"])
def llm(request: pytest.FixtureRequest, engines) -> ChatSSR:
    """Thinks for 8 tokens and answers with 24; once natively, once because it is asked to."""
    path = thinker() if request.param == "native" else instruct()
    return ChatSSR(engine=engines.get(path, EXACT), thinking=request.param, **LIMITS)


@pytest.fixture
def endless(engine: Engine) -> ChatSSR:
    """Goes on until its context is full or somebody stops it."""
    return ChatSSR(engine=engine, temperature=0.0)
