"""One claim: due rows are locked and read, decided on, and written, in a transaction that waits for nothing else."""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import psycopg
from msgspec.structs import replace
from psycopg import AsyncConnection

from turntake.buffer.codec import decode_conversation, decode_message
from turntake.buffer.engine.backend import Due, Offer
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.postgres.pool import Pool, is_worth_repeating
from turntake.buffer.postgres.search_columns import SearchColumns, arrays
from turntake.buffer.postgres.swap import SwapCall
from turntake.rules.key import ConversationKey

UNREADABLE_MS = 60_000

log = logging.getLogger("turntake")


class PostgresOffer(Offer):
    """A transaction that locked due rows; it ends with `take` or with its stack."""

    def __init__(
        self,
        pool: Pool,
        queries: dict[str, bytes],
        schema: str,
        span: tuple[int, int, int, int],
        transaction: AsyncExitStack,
    ) -> None:
        """`span`: of those that fell due from the first instant to the second, so many with so many messages each."""
        self.due: list[Due] = []
        self.is_taken = False
        self._pool = pool
        self._queries = queries
        self._schema = schema
        self._span = span
        self._put_off_to = span[1] + UNREADABLE_MS
        self._transaction = transaction

    async def open(self) -> None:
        self._connection = await self._pool.hold(self._transaction, self._begin)

    async def repair(self, wrong: Sequence[Due]) -> None:
        stale = [SearchColumns.of(due.key, due.row) for due in wrong]
        await self._connection.execute(self._queries["repair"], arrays(stale))

    async def take(self, drafts: Sequence[Draft]) -> list[bool]:
        call = SwapCall(drafts, self._schema, is_claim=True)
        try:
            answer = await self._write(call)
        except psycopg.Error as error:
            if not is_worth_repeating(error):
                raise
            # Whether it was written is unknown. It has a request id, so it may be sent again.
            answer = await self._pool.fetch(self._queries["swap"], call.parameters)
        refusals = call.read(answer).refusals
        self.is_taken = None in refusals
        return [refusal is None for refusal in refusals]

    async def _write(self, call: SwapCall) -> list[Any]:
        """In a pipeline the commit is sent along with the swap, so that both take one round trip."""
        cursor = await self._connection.execute(self._queries["swap"], call.parameters, binary=True)
        await self._transaction.aclose()
        return await cursor.fetchall()

    async def _begin(self, connection: AsyncConnection[Any], transaction: AsyncExitStack) -> None:
        await transaction.enter_async_context(connection.pipeline())
        await transaction.enter_async_context(connection.transaction())
        offer = await connection.execute(self._queries["offer"], self._span, binary=True)
        rows = [self._readable(*row) for row in await offer.fetchall()]
        unreadable = [row for row in rows if isinstance(row, int)]
        if unreadable:
            await connection.execute(self._queries["put_off"], (self._put_off_to, unreadable))
        self.due = [row for row in rows if isinstance(row, Due)]

    def _readable(
        self,
        row: int,
        key: str,
        version: int,
        body: bytes,
        seqs: list[int] | None,
        received_ats: list[int],
        payloads: list[bytes],
    ) -> Due | int:
        """One row that nobody can read must not keep everybody else from being answered: it is put off."""
        try:
            messages = {
                seq: replace(decode_message(payload), seq=seq, received_at=received_at)
                for seq, received_at, payload in zip(seqs or (), received_ats or (), payloads or (), strict=True)
            }
            return Due(ConversationKey.parse(key), Row(version, decode_conversation(body)), messages)
        except (ValueError, msgspec.MsgspecError):
            log.error("A conversation cannot be read", extra={"action": "claim", "conversation": key})
            return row
