"""Hints by NOTIFY and LISTEN. Listening takes a connection of its own, which must not lead through PgBouncer.

Hints are optional: where nobody can listen, workers look at the index once per horizon.
"""

import logging
from collections.abc import AsyncIterator

import psycopg
from psycopg import sql

from turntake.buffer.engine.hints import HintChannel, read_hint
from turntake.buffer.postgres.index_start import IndexStart
from turntake.buffer.postgres.pool import Pool, direct, reason
from turntake.buffer.postgres.swap import hint_text
from turntake.buffer.postgres.url import PostgresOptions
from turntake.buffer.store import Hint
from turntake.clock import Clock

FIRST_PAUSE_MS = 1_000  # as long as a worker sleeps without hints: nothing is lost by waiting
LONGEST_PAUSE_MS = 60_000  # a pooler that refuses LISTEN for ever is not asked more often than that

log = logging.getLogger("turntake")


class PostgresHints(HintChannel):
    """The channel has the name of the schema. What is heard of may be due before the start of the index."""

    def __init__(
        self, options: PostgresOptions, pool: Pool, publish_hint: bytes, index_start: IndexStart, clock: Clock
    ) -> None:
        self._options = options
        self._pool = pool
        self._publish_hint = publish_hint
        self._index_start = index_start
        self._clock = clock

    async def publish(self, hint: Hint) -> None:
        await self._pool.fetch(self._publish_hint, (self._options.schema, hint_text(hint)))

    async def listen(self) -> AsyncIterator[Hint]:
        """A lost connection is made anew after a pause, which doubles while it fails."""
        pause_ms = FIRST_PAUSE_MS
        while True:
            try:
                async with direct(self._options.conninfo) as connection:
                    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._options.schema)))
                    pause_ms = FIRST_PAUSE_MS
                    async for notice in connection.notifies():
                        hint = read_hint(notice.payload)
                        if hint is not None:
                            self._index_start.lower(hint.due_at, self._clock.now())
                            yield hint
            except psycopg.Error as error:
                if pause_ms == FIRST_PAUSE_MS:
                    extra = {"action": "hints", "error": reason(error)}
                    log.info("No hints from other processes for now", extra=extra)
            await self._clock.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
