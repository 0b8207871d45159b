"""ChatSSR's options as the engine's requests and settings. Pure.

Which options a call may carry, what they fall back on, and that a misspelt one is an error. What
their values may be is known to `ssr_local.request` and `ssr_local.settings` alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import ValidationError

from langchain_ssr.messages import NO_TOOLS, engine_messages
from ssr_local.errors import InvalidRequest
from ssr_local.request import Request, Sampling, describe
from ssr_local.settings import EngineSettings

OF_SAMPLING = frozenset(Sampling.model_fields)
OF_CALLS = OF_SAMPLING | (frozenset(Request.model_fields) - {"messages", "sampling"})
"""Options that each call may set anew."""
OF_ENGINE = ("n_ctx", "slots", "threads", "n_gpu_layers", "kv_type")
"""Options that are fixed when the model is loaded."""


def engine_request(
    messages: Sequence[BaseMessage], own: Mapping[str, Any], given: Mapping[str, Any]
) -> Request:
    """The request for a call.

    Args:
        own: the chat model's options.
        given: the call's, which come first. None in either means "not set".

    Raises:
        InvalidRequest: an option or a message is wrong; the text names it.
    """
    for name in given:
        if name not in OF_CALLS:
            raise InvalidRequest(f"{name}: {_why_not(name)}")
    options = {
        name: value
        for name, value in (*own.items(), *given.items())
        if value is not None and name in OF_CALLS
    }
    sampling = {name: options.pop(name) for name in OF_SAMPLING & options.keys()}
    return Request.of(engine_messages(messages), sampling=sampling, **options)


def engine_settings(own: Mapping[str, Any]) -> EngineSettings:
    """The set-up of the engine.

    Raises:
        InvalidRequest: a value is impossible.
    """
    chosen = {name: own[name] for name in OF_ENGINE if own[name] is not None}
    try:
        return EngineSettings(**chosen)
    except ValidationError as error:
        raise InvalidRequest(describe(error)) from error


def _why_not(name: str) -> str:
    if name in ("tools", "tool_choice", "functions", "function_call"):
        return f"{NO_TOOLS}."
    if name in ("model", "engine", *OF_ENGINE):
        return "fixed when the model is loaded; make another ChatSSR for another value."
    near = difflib.get_close_matches(name, OF_CALLS, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Calls take {', '.join(sorted(OF_CALLS))}."
    return f"no such option. {hint}"
