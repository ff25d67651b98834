"""The backend on PostgreSQL: every write is one call of `swap_1`, a claim is two calls in one short transaction."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Self

from turntake.buffer.engine.backend import Backend, Messages, Refusal
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.engine.store import CasStore
from turntake.buffer.open import Examined, Maintained
from turntake.buffer.postgres.archive import PostgresArchive
from turntake.buffer.postgres.binary_arrays import Texts
from turntake.buffer.postgres.claiming import PART_BYTES, PostgresOffer, offered
from turntake.buffer.postgres.examine import examine
from turntake.buffer.postgres.hints import PostgresHints
from turntake.buffer.postgres.index_start import IndexStart
from turntake.buffer.postgres.lookout import look_at
from turntake.buffer.postgres.pool import Pool, direct, explained_at_start
from turntake.buffer.postgres.queries import statements
from turntake.buffer.postgres.repair import repair
from turntake.buffer.postgres.rows import messages_of, row_of
from turntake.buffer.postgres.schema import migrate
from turntake.buffer.postgres.swap import SwapCall
from turntake.buffer.postgres.url import options_of
from turntake.buffer.store import HORIZON_MS, Hint
from turntake.clock import Clock
from turntake.errors import StoreUnavailable
from turntake.finding import Finding
from turntake.rules.key import ConversationKey
from turntake.rules.watch import ALONE, LIVING_MS, Place

CLOCK_NOTED_MS = 1_000  # how often the time is noted: a clock that was set back goes on no further behind
WARN_BEHIND_MS = 60_000  # less than a minute is a matter of synchronisation, and passes

log = logging.getLogger("turntake")


class PostgresBackend(Backend):
    """Works behind PgBouncer in transaction mode: nothing is kept in a session."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._options = options_of(url)
        self._clock = clock
        self._queries = statements(self._options.schema)
        self._pool = Pool(self._options.conninfo)
        self._index_start = IndexStart()
        self.archive = PostgresArchive(self._pool, self._queries)
        publish_hint = self._queries["publish_hint"]
        self.hints = PostgresHints(self._options, self._pool, publish_hint, self._index_start, clock)
        self._noted_at = 0
        self._has_written = False
        self._place = ALONE

    async def open(self) -> None:
        with explained_at_start(self._options.schema):
            async with direct(self._options.conninfo) as connection:
                await migrate(connection, self._options.schema)
                ((server_at, seen_at),) = await (await connection.execute(self._queries["clock"])).fetchall()
            await self._pool.open()
        if self._clock.is_followed:
            self._clock.follow(server_at)
        behind_ms = seen_at - self._clock.now()
        if behind_ms > WARN_BEHIND_MS:
            log.warning("The clock is behind the store's; going on from there", extra={"behind_ms": behind_ms})
        self._clock.resume(seen_at)

    async def close(self) -> None:
        await self._pool.close()

    def shard_of(self, key: ConversationKey) -> int:
        return 0

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        result = await self._fetch("load", (Texts(map(str, keys)),))
        rows = {key: row_of(version, body) for key, version, body in result}
        return [rows.get(str(key), Row()) for key in keys]

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
        noted_at = self._time_to_note()
        self._has_written = True
        call = SwapCall(drafts, self._options.schema, hint, noted_at=noted_at)
        for draft in drafts:
            # Before the write: a look that is under way meanwhile must not raise the mark beyond this row.
            self._index_start.lower(draft.conversation.due_at, draft.now)
        reply = call.read(await self._fetch("swap", call.parameters))
        if noted_at is not None and None in reply.refusals:
            self._has_written = False
        self._follow(reply.server_at, reply.seen_at)
        return reply.refusals

    def offer(self, limit: int, now: int) -> AbstractAsyncContextManager[PostgresOffer]:
        self._has_written = True  # most likely: workers claim when something is due
        span = self._index_start.for_claim(now), now
        return offered(self._pool, self._queries, self._options.schema, span, limit)

    async def next_due(self) -> int | None:
        look = self._index_start.look(self._clock.now())
        ((earliest, server_at, seen_at),) = await self._fetch("next_due", (look.start,))
        due_at: int | None = earliest
        self._index_start.looked(look, due_at)
        self._follow(server_at, seen_at)
        await self._note_clock()
        return due_at

    async def next_look(self, now: int) -> int | None:
        if self._place.workers == 1:
            return await self.next_due()
        look = self._index_start.look(now)
        span = look.start, now + HORIZON_MS, self._place.workers
        ((due_ats, server_at, seen_at),) = await self._fetch("next_dues", span)
        self._index_start.looked(look, due_ats[0] if due_ats else None)
        self._follow(server_at, seen_at)
        await self._note_clock()
        return look_at(self._place, due_ats, now)

    def take_place(self, place: Place) -> None:
        self._place = place

    async def living(self, worker: str, now: int) -> list[str]:
        found = await self._fetch("join", {"worker": worker, "now": now, "gone_at": now - LIVING_MS})
        return [name for (name,) in found]

    async def leave(self, worker: str) -> None:
        await self._fetch("leave", (worker,))

    async def times(self) -> tuple[int, int]:
        ((server_at, seen_at),) = await self._fetch("clock")
        return server_at, seen_at

    async def note_time(self, at: int) -> None:
        await self._fetch("set_clock", (at,))

    async def probe(self) -> None:
        """A standby answers every question; only a write tells."""
        await self._fetch("note_clock", {"now": self._clock.now()})

    async def rebuild(self) -> int:
        return await repair(self._pool, self._queries)

    async def finish_upgrade(self) -> list[str]:
        with explained_at_start(self._options.schema):
            async with direct(self._options.conninfo) as connection:
                return await migrate(connection, self._options.schema, is_finishing=True)

    async def _fetch(self, name: str, parameters: Any = ()) -> list[Any]:
        return await self._pool.fetch(self._queries[name], parameters)

    async def _note_clock(self) -> None:
        """Notes the time if something was written since it was noted last; an idle process writes nothing at all."""
        if self._has_written and (now := self._time_to_note()) is not None:
            self._has_written = False
            with suppress(StoreUnavailable):
                await self._fetch("note_clock", {"now": now})

    def _time_to_note(self) -> int | None:
        """The time, if it was last noted long enough ago."""
        now = self._clock.now()
        if now < self._noted_at + CLOCK_NOTED_MS:
            return None
        self._noted_at = now
        return now

    def _follow(self, server_at: int, seen_at: int) -> None:
        """Goes by the server's clock, or by the latest time noted if that is well ahead: the server's was set back.

        A time that is only a little ahead was noted by a process whose clock drifted. If all went by it, the fastest
        clock would rule.
        """
        if self._clock.is_followed:
            self._clock.follow(server_at, seen_at)


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
