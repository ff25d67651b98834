"""Forgets turns that ended long ago, a little at a time. Every worker runs one; several do no harm."""

import logging
from typing import Annotated

import msgspec

from turntake.buffer.store import Store
from turntake.clock import DAY_MS

log = logging.getLogger("turntake")

# Often enough that what is forgotten at once stays little.
PAUSE_MS = 60_000
# While there is more to forget: long enough for writers to get in between.
BUSY_PAUSE_MS = 100


class HistoryOptions(msgspec.Struct, frozen=True):
    """`[history]`: what is kept of turns that have ended."""

    # The platforms' longest redelivery is about a week; a message that comes again within it is known.
    keep_ms: Annotated[int, msgspec.Meta(ge=0, description="How long settled turns are kept.")] = 8 * DAY_MS


async def keep_forgetting(store: Store, options: HistoryOptions) -> None:
    """Drops settled turns once they are older than `keep_ms`, until it is cancelled."""
    while True:
        try:
            forgotten = await store.history.forget(store.clock.now() - options.keep_ms)
        except Exception as error:
            log.error("Nothing could be forgotten", extra={"action": "forget", "error": type(error).__name__})
            forgotten = 0
        await store.clock.sleep(BUSY_PAUSE_MS if forgotten else PAUSE_MS)
