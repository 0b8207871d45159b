"""Chat templates: a conversation rendered to the text that a model was trained on.

Owns compiling and running a template safely (see `sandbox` for what is promised of hostile ones).
It does not know what thinking is (`profiles`) or which text users wrote (`prompt`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ssr_local.chat.sandbox import TemplateRefusal, TemplateSandbox, TemplateTimeout, within
from ssr_local.errors import InvalidRequest, UnsupportedModel
from ssr_local.request import Message

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""
"""For models whose file has no template."""

SECONDS = 2.0
"""Longest time that a template may take."""

_LONGEST_SOURCE = 1_000_000

_REASONING_KEYS = ("reasoning_content", "thinking")
"""Names under which templates look for what an earlier assistant turn thought."""


class ChatTemplate:
    """A compiled template. Immutable, usable from several threads.

    Raises:
        UnsupportedModel: the template does not compile.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        if len(source) > _LONGEST_SOURCE:
            raise UnsupportedModel("The model's chat template is too long to be one.")
        try:
            self._template = within(SECONDS, lambda: TemplateSandbox().from_string(source))
        except TemplateTimeout:
            raise UnsupportedModel("The model's chat template takes too long to compile.") from None
        except Exception as error:
            raise UnsupportedModel(
                f"The model's chat template does not compile: {_reason(error)}"
            ) from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        seconds: float = SECONDS,
        **variables: object,
    ) -> str:
        """The conversation as text; with `add_generation_prompt`, up to where the model writes.

        `variables` are the template's own (`enable_thinking`, `tools`, ...).

        Raises:
            InvalidRequest: the template refuses the conversation; its own message says why.
            UnsupportedModel: the template fails, or does not end within `seconds`.
        """
        context: dict[str, Any] = {
            "tools": None,
            "documents": None,
            **self._tokens,
            **variables,
            "messages": [_as_dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return within(seconds, lambda: self._template.render(context))
        except TemplateRefusal as refusal:
            raise InvalidRequest(
                f"The model's chat template refuses this conversation: {refusal.message}"
            ) from refusal
        except TemplateTimeout:
            raise UnsupportedModel(
                f"The model's chat template did not end within {seconds:g} seconds; it may be "
                "damaged or hostile."
            ) from None
        except Exception as error:
            raise UnsupportedModel(
                f"The model's chat template fails on this conversation: {_reason(error)}"
            ) from error


def _as_dict(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        fields.update(dict.fromkeys(_REASONING_KEYS, message.reasoning))
    return fields


def _reason(error: Exception) -> str:
    line = getattr(error, "lineno", None)
    place = f" (line {line})" if line else ""
    return f"{type(error).__name__}: {error}{place}"
