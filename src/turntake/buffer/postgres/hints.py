"""Hints by LISTEN, on a connection of their own. They are optional: without them workers look once a second."""

import logging
from collections.abc import AsyncIterator

import msgspec
import psycopg
from psycopg import sql

from turntake.buffer.engine.backend import HintChannel
from turntake.buffer.postgres.index_start import IndexStart
from turntake.buffer.postgres.pool import Pool, direct, reason
from turntake.buffer.postgres.swap import hint_text
from turntake.buffer.postgres.url import Address
from turntake.buffer.store import Hint
from turntake.clock import Clock

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 60_000

log = logging.getLogger("turntake")
_decode = msgspec.json.Decoder(Hint).decode


class PostgresHints(HintChannel):
    """`publish_hint` is the statement. What is heard of may be due before the start of the index."""

    def __init__(self, address: Address, pool: Pool, publish_hint: bytes, start: IndexStart, clock: Clock) -> None:
        self._address = address
        self._pool = pool
        self._publish_hint = publish_hint
        self._index_start = start
        self._clock = clock

    async def publish(self, hint: Hint) -> None:
        await self._pool.fetch(self._publish_hint, (self._address.schema, hint_text(hint)))

    async def listen(self) -> AsyncIterator[Hint]:
        async for hint in listen(self._address, self._clock):
            self._index_start.lower(hint.due_at, self._clock.now())
            yield hint


async def listen(address: Address, clock: Clock) -> AsyncIterator[Hint]:
    """For as long as one listens; a lost connection is made anew after a pause."""
    pause_ms = FIRST_PAUSE_MS
    while True:
        try:
            async with direct(address.conninfo) as connection:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(address.schema)))
                pause_ms = FIRST_PAUSE_MS
                async for notice in connection.notifies():
                    hint = _read(notice.payload)
                    if hint is not None:
                        yield hint
        except psycopg.Error as error:
            if pause_ms == FIRST_PAUSE_MS:
                extra = {"action": "hints", "error": reason(error)}
                log.info("No hints from other processes for now", extra=extra)
        await clock.sleep(pause_ms)
        pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)


def _read(payload: str) -> Hint | None:
    """A later release may say it in another way."""
    try:
        return _decode(payload)
    except (msgspec.MsgspecError, ValueError):
        return None
