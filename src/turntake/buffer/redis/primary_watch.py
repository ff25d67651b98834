"""Behind Sentinels: asks them now and then who the primary is.

A primary that is replaced while it works, as in a planned failover, takes itself for the primary for about ten seconds
more, until the Sentinels tell it otherwise. Whatever it takes meanwhile is lost, and nothing tells whoever is connected
to it. So we ask, and leave it as soon as another is named.
"""

import asyncio
import logging

from redis.asyncio.sentinel import SentinelConnectionPool

from turntake.buffer.redis.url import UNREACHABLE, Client
from turntake.clock import Clock
from turntake.tasks import end

log = logging.getLogger("turntake")

# A failover takes seconds; what is written to the old primary in one more may be lost.
PAUSE_MS = 1_000


class PrimaryWatch:
    """Runs from `open` until `close`, if there are Sentinels."""

    def __init__(self, client: Client, clock: Clock) -> None:
        pool = getattr(client, "connection_pool", None)
        self._pool = pool if isinstance(pool, SentinelConnectionPool) else None
        self._clock = clock
        self._watching: asyncio.Task[None] | None = None

    def open(self) -> None:
        if self._pool is not None:
            self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        if self._watching is not None:
            await end([self._watching])

    async def look(self) -> None:
        """Leaves a primary that was replaced: the next call goes to its successor."""
        if self._pool is None:
            return
        known = self._pool.master_address
        named = await self._pool.get_master_address()  # type: ignore[no-untyped-call]
        if known is not None and named != known:
            log.warning("Redis has another primary; the old one is left", extra={"action": "failover"})
            await self._pool.disconnect(inuse_connections=True)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(PAUSE_MS)
            try:
                await self.look()
            except UNREACHABLE as error:
                facts = {"action": "failover", "error": type(error).__name__}
                log.debug("The Sentinels could not be asked who the primary is", extra=facts)
