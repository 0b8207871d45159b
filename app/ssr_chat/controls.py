"""What the window's controls mean for a request."""

from __future__ import annotations

from dataclasses import dataclass

from ssr_local.request import Message, Request

THINKING_CHOICES = [
    ("Thinking: auto", "auto"),
    ("Thinking: native", "native"),
    ("Thinking: prompted", "prompted"),
    ("Thinking: off", "off"),
]
POLICY_CHOICES = [
    ("Speculation: SSR", "ssr"),
    ("Speculation: prefix", "prefix"),
    ("Speculation: lookup", "lookup"),
    ("Speculation: off", "plain"),
]
DEFAULT_BUDGET = 2048
LARGEST_BUDGET = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Values as the window gives them. The text fields may be empty (None in a folded panel): then
    the model's makers, or chance, decide."""

    thinking: str = "auto"
    policy: str = "ssr"
    budget: float | None = DEFAULT_BUDGET
    temperature: str | None = None
    top_p: str | None = None
    seed: str | None = None
    max_tokens: str | None = None

    def request(self, messages: list[Message]) -> Request:
        """Raises InvalidRequest, naming the field that is wrong."""
        return Request.of(
            messages,
            thinking=self.thinking,
            thinking_budget=None if self.budget is None else int(self.budget),
            policy=self.policy,
            max_tokens=_given(self.max_tokens),
            sampling={
                "temperature": _given(self.temperature),
                "top_p": _given(self.top_p),
                "seed": _given(self.seed),
            },
        )


def _given(text: str | None) -> str | None:
    return text.strip() or None if text else None
