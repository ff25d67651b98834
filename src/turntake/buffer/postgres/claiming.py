"""One claim: due rows are locked and read, decided on, and written, in a transaction that waits for nothing else."""

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace
from psycopg import AsyncConnection

from turntake.buffer.codec import decode_conversation, decode_message
from turntake.buffer.engine.backend import PAGE, Due
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.postgres.search_columns import SearchColumns, arrays
from turntake.buffer.postgres.swap import SwapCall
from turntake.rules.key import ConversationKey

UNREADABLE_MS = 60_000

log = logging.getLogger("turntake")


class Claiming:
    """May be run again after the connection broke: what was decided is then written if it was not."""

    def __init__(
        self,
        queries: dict[str, bytes],
        schema: str,
        start: int,
        now: int,
        limit: int,
        decide: Callable[[Due], Draft | None],
    ) -> None:
        """Takes up to `limit` of those that fell due between `start` and `now`."""
        self._queries = queries
        self._schema = schema
        self._span = (start, now, limit, PAGE)
        self._put_off_to = now + UNREADABLE_MS
        self._decide = decide
        self._claims: list[tuple[Due, Draft]] = []
        self._batch: SwapCall | None = None

    async def run(self, connection: AsyncConnection[Any]) -> list[tuple[Due, Draft]]:
        if self._batch is not None:
            return self._taken(await self._swap(connection, self._batch))
        async with connection.pipeline(), connection.transaction():
            offer = await connection.execute(self._queries["offer"], self._span, binary=True)
            offered = [self._readable(*row) for row in await offer.fetchall()]
            unreadable = [due for due in offered if isinstance(due, int)]
            if unreadable:
                await connection.execute(self._queries["put_off"], (self._put_off_to, unreadable))
            due = [due for due in offered if isinstance(due, Due)]
            decided = [(each, self._decide(each)) for each in due]
            stale = [SearchColumns.of(each.key, each.row) for each, draft in decided if draft is None]
            if stale:
                # The index said due and the body does not: left so, the row would be offered for ever.
                await connection.execute(self._queries["repair"], arrays(stale))
            self._claims = [(each, draft) for each, draft in decided if draft]
            if not self._claims:
                return []
            batch = SwapCall([draft for _, draft in self._claims], self._schema, is_claim=True)
            self._batch = batch
            cursor = await connection.execute(self._queries["swap"], batch.parameters, binary=True)
        return self._taken(await cursor.fetchall())

    async def _swap(self, connection: AsyncConnection[Any], batch: SwapCall) -> list[Any]:
        cursor = await connection.execute(self._queries["swap"], batch.parameters, binary=True)
        return await cursor.fetchall()

    def _taken(self, answer: list[Any]) -> list[tuple[Due, Draft]]:
        assert self._batch is not None
        refusals = self._batch.read(answer).refusals
        return [claim for claim, refusal in zip(self._claims, refusals, strict=True) if refusal is None]

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
