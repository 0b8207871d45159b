"""A conversation: what was said, and what of it the model is told in the next turn."""

from __future__ import annotations

from dataclasses import dataclass, field

from ssr_chat.reply import Reply
from ssr_local.request import Message


@dataclass(slots=True)
class Exchange:
    """A user's message and the reply to it."""

    id: str
    text: str
    reply: Reply = field(default_factory=Reply)


@dataclass(slots=True)
class Conversation:
    exchanges: list[Exchange] = field(default_factory=list)

    def begin(self, text: str) -> Exchange:
        exchange = Exchange(f"exchange-{len(self.exchanges) + 1}", text)
        self.exchanges.append(exchange)
        return exchange

    def messages(self) -> list[Message]:
        """The prompt for the last exchange. Earlier ones without an answer (failed, or stopped
        before one) are left out: templates want turns to alternate."""
        *earlier, last = self.exchanges
        answered = [exchange for exchange in earlier if exchange.reply.answer]
        messages = [message for exchange in answered for message in _turns(exchange)]
        return [*messages, Message(role="user", content=last.text)]


def _turns(exchange: Exchange) -> tuple[Message, Message]:
    reply = exchange.reply
    return (
        Message(role="user", content=exchange.text),
        Message(
            role="assistant",
            content=reply.answer.text,
            reasoning=reply.thought.document.text or None,
        ),
    )
