"""Rows in PostgreSQL. Every write is one call of `swap_1`; a claim is two calls in one short transaction."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from turntake.buffer.engine.backend import PAGE, Backend, Messages, Refusal
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.postgres.archive import PostgresArchive
from turntake.buffer.postgres.binary_arrays import Texts
from turntake.buffer.postgres.claiming import PostgresOffer
from turntake.buffer.postgres.hints import PostgresHints
from turntake.buffer.postgres.index_start import IndexStart
from turntake.buffer.postgres.pool import Pool, direct, explained_at_start, unavailable_on_error
from turntake.buffer.postgres.queries import statements
from turntake.buffer.postgres.repair import repair
from turntake.buffer.postgres.rows import messages_of, row_of
from turntake.buffer.postgres.schema import migrate
from turntake.buffer.postgres.swap import SwapCall
from turntake.buffer.postgres.url import Address
from turntake.buffer.store import Hint
from turntake.clock import Clock
from turntake.errors import StoreUnavailable
from turntake.rules.key import ConversationKey

CLOCK_NOTED_MS = 1_000
APART_MS = 250
NOTICEABLE_MS = 60_000

log = logging.getLogger("turntake")


class PostgresBackend(Backend):
    """Works behind PgBouncer in transaction mode: nothing is kept in a session."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._queries = statements(address.schema)
        self._pool = Pool(address.conninfo)
        self._index_start = IndexStart()
        self.archive = PostgresArchive(self._pool, self._queries)
        self.hints = PostgresHints(address, self._pool, self._queries["publish_hint"], self._index_start, clock)
        self._noted_at = 0
        self._is_busy = False

    async def open(self) -> None:
        with explained_at_start(self._address.schema):
            async with direct(self._address.conninfo) as connection:
                await migrate(connection, self._address.schema)
                ((server_at, seen_at),) = await (await connection.execute(self._queries["clock"])).fetchall()
            await self._pool.open()
        if self._clock.is_followed:
            self._clock.follow(server_at)
        behind_ms = seen_at - self._clock.now()
        if behind_ms > NOTICEABLE_MS:
            log.warning("The clock is behind the store's; going on from there", extra={"behind_ms": behind_ms})
        self._clock.not_before(seen_at)

    async def close(self) -> None:
        await self._pool.close()

    def shard_of(self, key: ConversationKey) -> int:
        return 0

    async def swap(self, shard: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        noted_at = self._to_note()
        self._is_busy = True
        call = SwapCall(drafts, self._address.schema, hint, noted_at=noted_at)
        for draft in drafts:
            self._index_start.lower(draft.conversation.due_at, draft.now)
        reply = call.read(await self._fetch("swap", call.parameters))
        if noted_at is not None and None in reply.refusals:
            self._is_busy = False
        self._follow(reply.server_at, reply.seen_at)
        return reply.refusals

    @asynccontextmanager
    async def offer(self, limit: int, now: int) -> AsyncIterator[PostgresOffer]:
        span = (self._index_start.for_claim(now), now, min(limit, PAGE), PAGE)
        with unavailable_on_error():
            async with AsyncExitStack() as transaction:
                offer = PostgresOffer(self._pool, self._queries, self._address.schema, span, transaction)
                await offer.open()
                yield offer
                self._is_busy = self._is_busy or offer.is_taken

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        result = await self._fetch("load", (Texts(map(str, keys)),))
        rows = {key: row_of(version, body) for key, version, body in result}
        return [rows.get(str(key), Row()) for key in keys]

    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        return messages_of(await self._fetch("messages", (str(key), head, tail)))

    async def next_due(self) -> int | None:
        look = self._index_start.look(self._clock.now())
        ((earliest, server_at, seen_at),) = await self._fetch("next_due", (look.start,))
        due_at: int | None = earliest
        self._index_start.looked(look, due_at)
        self._follow(server_at, seen_at)
        await self._note_clock()
        return due_at

    async def rebuild(self) -> int:
        return await repair(self._pool, self._queries)

    async def finish_upgrade(self) -> list[str]:
        with explained_at_start(self._address.schema):
            async with direct(self._address.conninfo) as connection:
                return await migrate(connection, self._address.schema, is_finishing=True)

    async def _fetch(self, name: str, parameters: Any = ()) -> list[Any]:
        return await self._pool.fetch(self._queries[name], parameters)

    async def _note_clock(self) -> None:
        """Whoever does nothing notes nothing: no deadline was given by that time."""
        if self._is_busy and (now := self._to_note()) is not None:
            self._is_busy = False
            with suppress(StoreUnavailable):
                await self._fetch("note_clock", {"now": now})

    def _to_note(self) -> int | None:
        """The time, if it is to be noted again."""
        now = self._clock.now()
        if now < self._noted_at + CLOCK_NOTED_MS:
            return None
        self._noted_at = now
        return now

    def _follow(self, server_at: int, seen_at: int) -> None:
        """By the server's clock, or by processes that are well ahead of it, as after it was set back: all must meet.

        Those only a little ahead drifted, and come back by themselves; if all went by them, nobody would.
        """
        if self._clock.is_followed:
            self._clock.follow(server_at)
            if seen_at > server_at + APART_MS:
                self._clock.not_before(seen_at)
