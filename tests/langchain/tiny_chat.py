"""The tiny models behind these tests' chat models, and options that keep their calls short."""

from __future__ import annotations

from pathlib import Path

from support.tiny_gguf import (
    NEVER,
    PLAIN_TEMPLATE,
    PREOPENED_TEMPLATE,
    Character,
    tiny_model,
)

from ssr_local.settings import EngineSettings

EXACT = EngineSettings.exact(n_ctx=2048, draft_cells=512)
LIMITS = {"thinking_budget": 8, "max_tokens": 32, "temperature": 0.0}
"""8 tokens of thinking, then 24 of an answer."""
_ENDLESS = Character(end_bias=NEVER, close_bias=NEVER)


def thinker() -> Path:
    """Thinks natively, and never ends anything by itself."""
    return tiny_model(chat_template=PREOPENED_TEMPLATE, character=_ENDLESS)


def instruct() -> Path:
    """The same without any thinking of its own."""
    return tiny_model(chat_template=PLAIN_TEMPLATE, character=_ENDLESS)
