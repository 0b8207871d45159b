"""Events in batches: at once when they are rare, at most so often when they are many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from ssr_local.events import Event


async def paced(events: AsyncIterator[Event], interval: float) -> AsyncGenerator[list[Event], None]:
    """All events in order, in lists that come at least `interval` seconds apart."""
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    feeder = asyncio.create_task(_feed(events, queue))
    try:
        ended = False
        while not ended:
            batch = [await queue.get()]
            while not queue.empty():
                batch.append(queue.get_nowait())
            ended = None in batch
            if fresh := [event for event in batch if event is not None]:
                yield fresh
            await asyncio.sleep(0 if ended else interval)
        await feeder  # an error of the source is the reader's to see
    finally:
        feeder.cancel()
        with suppress(asyncio.CancelledError):
            await feeder


async def _feed(events: AsyncIterator[Event], queue: asyncio.Queue[Event | None]) -> None:
    try:
        async for event in events:
            queue.put_nowait(event)
    finally:
        queue.put_nowait(None)
