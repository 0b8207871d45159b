"""The one error that LangChain has its own name for.

All others of `ssr_local.errors` reach LangChain users as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ssr_local.errors import ContextOverflow

try:
    from langchain_core.exceptions import ContextOverflowError
except ImportError:  # an older langchain-core
    from langchain_core.exceptions import (  # type: ignore[assignment]
        LangChainException as ContextOverflowError,
    )


class PromptOverflow(ContextOverflow, ContextOverflowError):
    """A `ContextOverflow` that code written for other chat models catches as well."""


@contextmanager
def overflow_in_both_trees() -> Iterator[None]:
    """Raises PromptOverflow in place of ContextOverflow."""
    try:
        yield
    except ContextOverflow as error:
        raise PromptOverflow(error.prompt_tokens, error.context_tokens) from error
