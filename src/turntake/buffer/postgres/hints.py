"""Hints by LISTEN, on a connection of their own. They are optional: without them workers look once a second."""

import logging
from collections.abc import AsyncIterator

import msgspec
import psycopg
from psycopg import sql

from turntake.buffer.postgres.pool import direct, reason
from turntake.buffer.postgres.url import Address
from turntake.buffer.store import Hint
from turntake.clock import Clock

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 60_000

log = logging.getLogger("turntake")
_decode = msgspec.json.Decoder(Hint).decode


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
