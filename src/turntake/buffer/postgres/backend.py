"""Rows in PostgreSQL. Every write is one call of `swap_1`; a claim is two calls in one short transaction."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from turntake.buffer.codec import decode_closed, decode_conversation, decode_message
from turntake.buffer.cursor import Place
from turntake.buffer.engine.backend import PAGE, Due, Messages, Refusal, Shelf, TurnRow
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.postgres.binary_arrays import Texts
from turntake.buffer.postgres.claiming import Claiming
from turntake.buffer.postgres.hints import listen
from turntake.buffer.postgres.index_start import Floor
from turntake.buffer.postgres.opening import opening
from turntake.buffer.postgres.pool import Connections, direct
from turntake.buffer.postgres.queries import statements
from turntake.buffer.postgres.schema import migrate
from turntake.buffer.postgres.search_columns import Copies, arrays
from turntake.buffer.postgres.swap import Batch, written
from turntake.buffer.postgres.url import Address
from turntake.buffer.store import Hint
from turntake.clock import Clock
from turntake.errors import StoreUnavailable
from turntake.rules.key import ConversationKey

CLOCK_NOTED_MS = 1_000
APART_MS = 250
NOTICEABLE_MS = 60_000
LATEST = 2**62

log = logging.getLogger("turntake")


class PostgresShelf(Shelf):
    """Works behind PgBouncer in transaction mode: nothing is kept in a session."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._queries = statements(address.schema)
        self._connections = Connections(address.conninfo)
        self._floor = Floor()
        self._noted_at = 0
        self._is_busy = False

    async def open(self) -> None:
        with opening(self._address.schema):
            async with direct(self._address.conninfo) as connection:
                await migrate(connection, self._address.schema)
                ((server_at, seen_at),) = await (await connection.execute(self._queries["clock"])).fetchall()
            await self._connections.open()
        if self._clock.is_followed:
            self._clock.follow(server_at)
        behind_ms = seen_at - self._clock.now()
        if behind_ms > NOTICEABLE_MS:
            log.warning("The clock is behind the store's; going on from there", extra={"behind_ms": behind_ms})
        self._clock.not_before(seen_at)

    async def close(self) -> None:
        await self._connections.close()

    def lane(self, key: ConversationKey) -> int:
        return 0

    async def swap(self, lane: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        noted_at = self._to_note()
        self._is_busy = True
        batch = Batch(drafts, self._address.schema, hint, noted_at=noted_at)
        for draft in drafts:
            self._floor.lower(draft.conversation.due_at, draft.now)
        reply = batch.read(await self._fetch("swap", batch.parameters))
        if noted_at is not None and None in reply.refusals:
            self._is_busy = False
        self._follow(reply.server_at, reply.seen_at)
        return reply.refusals

    async def claim(self, limit: int, now: int, decide: Callable[[Due], Draft | None]) -> list[tuple[Due, Draft]]:
        start = self._floor.start(now)
        claiming = Claiming(self._queries, self._address.schema, start, now, min(limit, PAGE), decide)
        claimed = await self._connections.steadily(claiming.run)
        self._is_busy = self._is_busy or bool(claimed)
        return claimed

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        found = await self._fetch("load", (Texts(map(str, keys)),))
        rows = {key: Row(version, decode_conversation(body)) for key, version, body in found}
        return [rows.get(str(key), Row()) for key in keys]

    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        found = await self._fetch("messages", (str(key), head, tail))
        return {seq: replace(decode_message(raw), seq=seq, received_at=at) for seq, at, raw in found}

    async def next_due(self) -> int | None:
        look = self._floor.look(self._clock.now())
        ((found, server_at, seen_at),) = await self._fetch("next_due", (look.start,))
        due_at: int | None = found
        self._floor.found(look, due_at)
        self._follow(server_at, seen_at)
        await self._note_clock()
        return due_at

    async def turn(self, turn_id: str) -> TurnRow | None:
        if not turn_id.isprintable():
            return None
        found = await self._fetch("turn", (turn_id,))
        return _turn(*found[0]) if found else None

    async def turns(self, key: ConversationKey, limit: int) -> list[TurnRow]:
        return [_turn(*row) for row in await self._fetch("turns", (str(key), limit))]

    async def letters(self, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        at, letter_id = before or (LATEST, "")
        return [_turn(*row) for row in await self._fetch("letters", (at, _place(letter_id), limit))]

    async def index(self, after: Place | None, limit: int) -> list[tuple[Place, Row]]:
        due_at, key = (after[0], _place(after[1])) if after else (0, "")
        rows: list[Any] = []
        if due_at is not None:
            rows = await self._fetch("waiting", (due_at, key, limit))
            key = ""
        if len(rows) < limit:
            rows += await self._fetch("idle", (key, limit - len(rows)))
        return [((at, key), Row(version, decode_conversation(body))) for at, key, version, body in rows]

    async def forget(self, before: int, limit: int) -> int:
        ((count,),) = await self._fetch("forget", (before, limit))
        return int(count)

    async def rebuild(self) -> int:
        """The server keeps its indexes itself; what they are of are copies of what the bodies say."""
        mended, after = 0, ""
        while page := await self._fetch("copies", (after, PAGE)):
            wrong = [right for row in page if (right := _right(*row))]
            if wrong:
                mended += len(await self._fetch("mend", arrays(wrong)))
            after = page[-1][0]
        return mended

    async def finish_upgrade(self) -> list[str]:
        with opening(self._address.schema):
            async with direct(self._address.conninfo) as connection:
                return await migrate(connection, self._address.schema, is_finishing=True)

    async def announce(self, hint: Hint) -> None:
        await self._fetch("announce", (self._address.schema, written(hint)))

    async def hints(self) -> AsyncIterator[Hint]:
        async for hint in listen(self._address, self._clock):
            self._floor.lower(hint.due_at, self._clock.now())
            yield hint

    async def _fetch(self, name: str, parameters: Any = ()) -> list[Any]:
        return await self._connections.fetch(self._queries[name], parameters)

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


def _place(name: str) -> str:
    """What a cursor may hold: nothing else was ever listed, and the server takes no NUL."""
    if not name.isprintable():
        raise ValueError("This cursor comes from no listing.")
    return name


def _turn(key: str, turn_id: str, body: bytes | None, letter_at: int | None) -> TurnRow:
    closed = None if body is None else decode_closed(body)
    return TurnRow(ConversationKey.parse(key), turn_id, closed, letter_at is not None)


def _right(key: str, version: int, state: str, due_at: int | None, open_from: int, body: bytes) -> Copies | None:
    """The copies as they should be; None if they are, or if nobody can tell."""
    try:
        right = Copies.of(ConversationKey.parse(key), Row(version, decode_conversation(body)))
    except (ValueError, msgspec.MsgspecError):
        log.error("A conversation cannot be read", extra={"action": "rebuild", "conversation": key})
        return None
    return None if right == (key, version, state, due_at, open_from) else right
