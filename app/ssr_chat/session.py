"""What one browser tab has: its conversation, and the request that runs for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from ssr_chat.controls import Controls
from ssr_chat.conversation import Conversation, Exchange
from ssr_chat.host import EngineHost, State, Status
from ssr_chat.pacing import paced
from ssr_local.errors import BackendError, SSRError
from ssr_local.generation import Generation

_logger = logging.getLogger("ssr_chat")
UPDATE_SECONDS = 0.1
POLL_SECONDS = 0.1
BUSY = "Waiting: the model is answering in another tab"


@dataclass(slots=True)
class Session:
    """Gradio keeps one for each tab, as a copy of an empty one."""

    conversation: Conversation = field(default_factory=Conversation)
    generation: Generation | None = None
    running: bool = False
    stopped: bool = False
    """The user stopped a reply that had not reached the engine yet."""
    seen: Status | None = None
    """The host's status that the page shows."""

    def stop(self) -> None:
        """End the running request; it keeps what it has written."""
        self.stopped = True
        if self.generation:
            self.generation.cancel()

    def answer_now(self) -> None:
        if self.generation:
            self.generation.answer_now()

    def start_over(self) -> None:
        """Begin a new conversation; a reply that still runs is stopped and belongs to the old."""
        self.stop()
        self.conversation = Conversation()

    async def ask(
        self, text: str, controls: Controls, host: EngineHost
    ) -> AsyncGenerator[Exchange, None]:
        """Send a message; the exchange, whenever there is something new to show of it.

        However the iteration ends, decoding ends with it.
        """
        self.running, self.stopped = True, False
        conversation = self.conversation
        exchange = conversation.begin(text)
        reply = exchange.reply
        try:
            async for reply.waiting_for in self._until_loaded(host):
                yield exchange
            if self.stopped:
                reply.stop()
            else:
                async with aclosing(self._run(exchange, conversation, controls, host)) as updates:
                    async for update in updates:
                        yield update
        except SSRError as error:
            reply.refuse(error)
        except Exception as error:
            _logger.exception("a reply failed")
            reply.fail(BackendError(f"The window failed: {error!r}"))
        finally:
            self.running = False
        yield exchange

    async def _until_loaded(self, host: EngineHost) -> AsyncGenerator[str, None]:
        """What the host is doing, for as long as it loads a model and nobody stops the wait."""
        said = None
        while (status := host.status).state is State.LOADING and not self.stopped:
            share = "" if status.share is None else f", {status.share:.0%}"
            if said != (said := f"{status.doing}{share}"):
                yield said
            await asyncio.sleep(POLL_SECONDS)

    async def _run(
        self, exchange: Exchange, conversation: Conversation, controls: Controls, host: EngineHost
    ) -> AsyncGenerator[Exchange, None]:
        request = controls.request(conversation.messages())
        exchange.reply.waiting_for = BUSY if host.busy else ""
        self.generation = generation = host.submit(request)
        try:
            if self.stopped:  # while the engine took the request
                generation.cancel()
            yield exchange
            async with aclosing(paced(aiter(generation), UPDATE_SECONDS)) as batches:
                async for batch in batches:
                    for event in batch:
                        exchange.reply.apply(event)
                    yield exchange
        finally:
            self.generation = None
            host.release(generation)
