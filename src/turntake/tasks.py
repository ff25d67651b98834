"""Ends tasks that run until they are cancelled."""

import asyncio
from collections.abc import Collection
from typing import Any

# A task that was cancelled ends at once; one that did not hear of it is told again after this.
AGAIN_MS = 100


async def end(tasks: "Collection[asyncio.Future[Any]]") -> None:
    """Cancels them until the last has ended; how they ended is not told.

    Once is not enough: `asyncio.wait_for` of Python 3.11, which redis-py sends every command with, loses a cancellation
    that comes at the moment at which what it waits for is done.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=AGAIN_MS / 1000)
