"""The backend on PostgreSQL: every write is one call of `swap_1`, a claim is two calls in one short transaction."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from turntake.buffer.engine.backend import Backend, Messages, Refusal
from turntake.buffer.engine.draft import NEW, Draft, Row, row_of
from turntake.buffer.engine.noted_time import go_on_from
from turntake.buffer.engine.store import CasStore
from turntake.buffer.open import Examined, Maintained
from turntake.buffer.postgres.archive import PostgresArchive
from turntake.buffer.postgres.binary_arrays import Texts
from turntake.buffer.postgres.claiming import PART_BYTES, PostgresOffer, offered
from turntake.buffer.postgres.documents import PostgresDocuments
from turntake.buffer.postgres.examine import examine
from turntake.buffer.postgres.hints import PostgresHints
from turntake.buffer.postgres.index_start import IndexStart
from turntake.buffer.postgres.lookout import PostgresLookout
from turntake.buffer.postgres.noted_time import PostgresNotedTime
from turntake.buffer.postgres.pool import Pool, direct, explained_at_start
from turntake.buffer.postgres.queries import statements
from turntake.buffer.postgres.repair import repair
from turntake.buffer.postgres.rows import messages_of
from turntake.buffer.postgres.schema import migrate
from turntake.buffer.postgres.swap import SwapCall
from turntake.buffer.postgres.url import options_of
from turntake.buffer.store import Hint
from turntake.clock import Clock
from turntake.finding import Finding
from turntake.rules.key import ConversationKey


class PostgresBackend(Backend):
    """Works behind PgBouncer in transaction mode: nothing is kept in a session."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._options = options_of(url)
        self._clock = clock
        self._queries = statements(self._options.schema)
        self._pool = Pool(self._options.conninfo)
        self._index_start = IndexStart()
        self.archive = PostgresArchive(self._pool, self._queries, self._index_start)
        self.documents = PostgresDocuments(self._pool, self._queries)
        publish_hint = self._queries["publish_hint"]
        self.hints = PostgresHints(self._options, self._pool, publish_hint, self._index_start, clock)
        self.noted_time: PostgresNotedTime = PostgresNotedTime(self._pool, self._queries, clock)
        self.lookout: PostgresLookout = PostgresLookout(
            self._pool, self._queries, self._index_start, self.noted_time, clock
        )

    async def open(self) -> None:
        with explained_at_start(self._options.schema):
            async with direct(self._options.conninfo) as connection:
                await migrate(connection, self._options.schema)
                ((server_at, seen_at),) = await (await connection.execute(self._queries["clock"])).fetchall()
            await self._pool.open()
        if self._clock.is_followed:
            self._clock.follow(server_at)
        go_on_from(seen_at, self._clock)

    async def close(self) -> None:
        await self._pool.close()

    def shard_of(self, key: ConversationKey) -> int:
        return 0

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        result = await self._fetch("load", (Texts(map(str, keys)),))
        rows = {key: row_of(version, body) for key, version, body in result}
        return [rows.get(str(key), NEW) for key in keys]

    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        """In parts, each of which travels in less time than we wait for an answer."""
        messages: Messages = {}
        while part := messages_of(await self._fetch("messages", (str(key), head, tail, PART_BYTES))):
            messages |= part
            head = max(part) + 1
            if head > tail:
                break
        return messages

    async def swap(self, shard: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        noted_at = self.noted_time.to_note()
        self.noted_time.has_written = True
        call = SwapCall(drafts, self._options.schema, hint, noted_at=noted_at)
        for draft in drafts:
            # Before the write: a look that is under way meanwhile must not raise the mark beyond this row.
            self._index_start.lower(draft.conversation.due_at, draft.now)
        reply = call.read(await self._fetch("swap", call.parameters))
        if noted_at is not None and None in reply.refusals:
            self.noted_time.has_written = False
        self.noted_time.follow(reply.server_at, reply.seen_at)
        return reply.refusals

    def offer(
        self, limit: int, now: int, among: Sequence[ConversationKey] | None = None
    ) -> AbstractAsyncContextManager[PostgresOffer]:
        self.noted_time.has_written = True  # most likely: workers claim when something is due
        span = self._index_start.for_claim(now), now
        return offered(self._pool, self._queries, self._options.schema, span, limit, among)

    async def next_due(self) -> int | None:
        return await self.lookout.next_due()

    async def probe(self) -> None:
        """A standby answers every question; only a write tells."""
        await self.noted_time.note()

    async def rebuild(self) -> int:
        return await repair(self._pool, self._queries)

    async def finish_upgrade(self) -> list[str]:
        with explained_at_start(self._options.schema):
            async with direct(self._options.conninfo) as connection:
                return await migrate(connection, self._options.schema, is_finishing=True)

    async def _fetch(self, name: str, parameters: Any = ()) -> list[Any]:
        return await self._pool.fetch(self._queries[name], parameters)


class PostgresStore(CasStore, Examined, Maintained):
    """`postgresql://user:password@host:5432/database`; `?schema=` names another schema than `turntake`."""

    backend: PostgresBackend

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        return cls(PostgresBackend(url, clock), clock)

    @classmethod
    def examine(cls, url: str, clock: Clock) -> AsyncIterator[Finding]:
        return examine(url, clock)

    async def rebuild(self) -> int:
        return await self.backend.rebuild()

    async def finish_upgrade(self) -> list[str]:
        return await self.backend.finish_upgrade()
