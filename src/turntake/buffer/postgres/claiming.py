"""A claim on PostgreSQL: due rows are locked and read, decided on, and written, in one short transaction.

How this works: the function `offer_2` reads the earliest due rows with their messages and locks them; rows that another
worker has locked are skipped, so no two workers are offered the same. The engine decides at once, without waiting for
anything. Then `swap_1` writes the drafts and the transaction commits, both sent in one round trip. A worker that dies
meanwhile loses its connection, and the server gives the locks back.

The connection may break at two points. Before the rows are there, the transaction is begun again on another connection.
After the drafts were sent, nobody knows whether they were written; so the same call is sent again outside of the
transaction. Rows that it wrote carry its id and are not refused.
"""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import psycopg

from turntake.buffer.engine.backend import PAGE, UNREADABLE_MS, Due, Offer
from turntake.buffer.engine.draft import Draft, row_of
from turntake.buffer.postgres.binary_arrays import Texts
from turntake.buffer.postgres.pool import Pool, Transaction, is_worth_repeating, unavailable_on_error
from turntake.buffer.postgres.rows import messages_of
from turntake.buffer.postgres.search_columns import SearchColumns, arrays
from turntake.buffer.postgres.swap import SwapCall
from turntake.rules.key import ConversationKey

MESSAGES_OFFERED = PAGE  # more than nearly all turns have; those of a longer one are read afterwards
PART_BYTES = 1 << 20  # half a second on a slow link of 20 Mbit/s, and hundreds of usual turns

log = logging.getLogger("turntake")


class PostgresOffer(Offer):
    """Due rows that a transaction has locked. It ends with `take`, or when the offer's context is left."""

    def __init__(
        self, pool: Pool, queries: dict[str, bytes], channel: str, transaction: Transaction, due: list[Due]
    ) -> None:
        self.due = due
        self._pool = pool
        self._queries = queries
        self._channel = channel
        self._transaction = transaction

    async def take(self, drafts: Sequence[Draft]) -> list[bool]:
        call = SwapCall(drafts, self._channel, is_claim=True)
        try:
            answer = await self._write(call)
        except psycopg.Error as error:
            if not is_worth_repeating(error):
                raise
            answer = await self._pool.fetch(self._queries["swap"], call.parameters)
        return [refusal is None for refusal in call.read(answer).refusals]

    async def repair(self, wrong: Sequence[Due]) -> None:
        columns = [SearchColumns.of(due.key, due.row) for due in wrong]
        await self._transaction.execute(self._queries["repair"], arrays(columns))

    async def _write(self, call: SwapCall) -> list[Any]:
        return await self._transaction.finish(self._queries["swap"], call.parameters)


@asynccontextmanager
async def offered(
    pool: Pool,
    queries: dict[str, bytes],
    channel: str,
    span: tuple[int, int],
    limit: int,
    among: Sequence[ConversationKey] | None = None,
) -> AsyncIterator[PostgresOffer]:
    """Up to `limit` conversations that fell due between the two instants of `span`; or those of `among` that did, in
    that order."""
    query: tuple[bytes, Any] = queries["offer"], (*span, min(limit, PAGE), MESSAGES_OFFERED, PART_BYTES)
    if among is not None:
        each = {"most_messages": MESSAGES_OFFERED, "most_bytes": PART_BYTES // max(1, len(among))}
        query = queries["offer_among"], {"keys": Texts(map(str, among)), "now": span[1], **each}
    with unavailable_on_error():
        transaction = await pool.begin(*query)
        async with transaction.stack:
            due: list[Due] = []
            unreadable: list[int] = []
            for row_id, key, version, body, *columns in transaction.rows:
                try:
                    due.append(Due(ConversationKey.parse(key), row_of(version, body), messages_of(_together(*columns))))
                except (ValueError, msgspec.MsgspecError):
                    log.error("A conversation cannot be read", extra={"action": "claim", "conversation": key})
                    unreadable.append(row_id)
            if unreadable:
                # One row that nobody can read must not be offered again and again in place of others.
                await transaction.execute(queries["put_off"], (span[1] + UNREADABLE_MS, unreadable))
            yield PostgresOffer(pool, queries, channel, transaction, due)


def _together(
    seqs: list[int] | None, received_ats: list[int] | None, payloads: list[bytes] | None
) -> "zip[tuple[int, int, bytes]]":
    """One tuple per message, out of three arrays that are NULL if there are none."""
    return zip(seqs or (), received_ats or (), payloads or (), strict=True)
