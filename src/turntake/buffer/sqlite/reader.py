"""Reads, on a connection of their own, so that they never wait for a commit."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import TypeVar

import apsw

from turntake.buffer.codec import decode_closed, decode_conversation
from turntake.buffer.cursor import Cursor
from turntake.buffer.sqlite.queries import one, rows
from turntake.buffer.sqlite.transaction import Transaction, messages_in
from turntake.buffer.sqlite.writer import Writer
from turntake.buffer.store import History, Letters, Page, Query
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Conversation
from turntake.rules.key import ConversationKey
from turntake.rules.message import as_said, in_order
from turntake.rules.records import Letter, Snapshot, TurnRecord, letter_of
from turntake.rules.transitions import open_ranges

FORGOTTEN_AT_ONCE = 500
SCANNED_AT_ONCE = 1_000
LATEST = 2**62
START = Cursor(0, "")
IDLE = Cursor(None, "")

T = TypeVar("T")


class SqliteReader:
    """Each read sees one moment of the database. Short reads and long ones have a reader each."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="turntake-sqlite-reader")

    def close(self) -> None:
        self._thread.shutdown()
        self.connection.close()

    async def in_thread(self, read: Callable[[], T]) -> T:
        """For reads that may take a while. The thread is this reader's own: handlers cannot keep it busy."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, read)

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        with self._lock, unavailable_on_error():
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.execute("COMMIT")

    def seen_at(self) -> int:
        """The latest time any process saw; 0 for a new database."""
        row = one(self.connection, "clock")
        return 0 if row is None else int(row[0])

    def next_due(self) -> int | None:
        with unavailable_on_error():
            row = one(self.connection, "next_due")
        return None if row is None else int(row[0])

    def find(self, key: ConversationKey) -> Snapshot | None:
        with self._snapshot():
            row = one(self.connection, "load", str(key))
            if row is None:
                return None
            conversation = decode_conversation(row[1])
            ranges = [messages_in(self.connection, row[0], r.start, r.stop - 1) for r in open_ranges(conversation)]
            return Snapshot(key, conversation, tuple(chain.from_iterable(map(as_said, ranges))))

    def turn(self, turn_id: str) -> TurnRecord | None:
        with self._snapshot():
            row = one(self.connection, "turn", turn_id)
            return None if row is None else self._record(turn_id, *row)

    def turns(self, key: ConversationKey, limit: int) -> list[TurnRecord]:
        with self._snapshot():
            owner = one(self.connection, "load", str(key))
            if owner is None:
                return []
            found = rows(self.connection, "turns", owner[0], limit)
            return [record for row in found if (record := self._record(*row))]

    def letter(self, letter_id: str) -> Letter | None:
        with self._snapshot():
            row = one(self.connection, "letter", letter_id)
            if row is None:
                return None
            closed = decode_closed(row[1])
            messages = in_order(as_said(messages_in(self.connection, row[0], closed.head, closed.tail)))
            return letter_of(self._key(row[0]), closed, messages)

    def letters(self, limit: int, after: str) -> Page[Letter]:
        at, _, letter_id = after.partition("-")
        with self._snapshot():
            found = rows(self.connection, "letters", int(at or LATEST), letter_id, limit + 1)
            items = tuple(letter_of(self._key(row[2]), decode_closed(row[3])) for row in found[:limit])
        return Page(items, f"{found[limit - 1][0]}-{found[limit - 1][1]}" if len(found) > limit else "")

    def conversations(self, query: Query) -> Page[tuple[ConversationKey, Conversation]]:
        """Pages through those with a deadline, then through the idle ones; a filter may need several pages.

        One that moves on meanwhile, from the first to the second, is there once, as it was seen last.
        """
        found: dict[ConversationKey, Conversation] = {}
        last = START
        after: Cursor | None = Cursor.parse(query.cursor) if query.cursor else START
        while after is not None:
            page, after = self._page(query, after)
            for this, key, body in page:
                parsed = ConversationKey.parse(key)
                if query.tenant not in ("", parsed.tenant) or query.channel not in ("", parsed.channel):
                    continue
                if len(found) == query.limit and parsed not in found:
                    return Page(tuple(found.items()), str(last))
                found[parsed] = decode_conversation(body)
                last = this
        return Page(tuple(found.items()))

    def _page(self, query: Query, after: Cursor) -> tuple[list[tuple[Cursor, str, bytes]], Cursor | None]:
        due_at, after_key = after
        page: list[tuple[Cursor, str, bytes]] = []
        with self._snapshot():
            if due_at is not None and query.state != "idle":
                found = rows(self.connection, "waiting_page", due_at, after_key, query.state, SCANNED_AT_ONCE)
                page = [(Cursor(due, key), key, body) for due, key, body in found]
                then = IDLE if query.state == "" else None
            elif query.state in ("", "idle"):
                found = rows(self.connection, "idle_page", after_key if due_at is None else "", SCANNED_AT_ONCE)
                page, then = [(Cursor(None, key), key, body) for key, body in found], None
            else:
                then = None
        return page, page[-1][0] if len(page) == SCANNED_AT_ONCE else then

    def _record(self, turn_id: str, row: int, body: bytes | None) -> TurnRecord | None:
        key, conversation = self._owner(row)
        if body is not None:
            closed = decode_closed(body)
            messages = in_order(as_said(messages_in(self.connection, row, closed.head, closed.tail)))
            return TurnRecord(key, turn_id, closed.status, closed.epoch, closed.turn, messages, closed)
        turn = conversation.turn
        if turn is None:
            return None
        messages = in_order(as_said(messages_in(self.connection, row, turn.head, turn.tail)))
        return TurnRecord(key, turn_id, conversation.state, conversation.epoch, turn, messages)

    def _owner(self, row: int) -> tuple[ConversationKey, Conversation]:
        found = one(self.connection, "load_by_id", row)
        assert found is not None, "a turn's conversation is never deleted before it"
        return ConversationKey.parse(found[0]), decode_conversation(found[1])

    def _key(self, row: int) -> ConversationKey:
        return self._owner(row)[0]


@contextmanager
def unavailable_on_error() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise StoreUnavailable(f"The SQLite file cannot be read ({error}).") from error


class SqliteHistory(History):
    """What happened, read from the turns table. Listings may take a while, so a thread reads them."""

    def __init__(self, reader: SqliteReader, lister: SqliteReader, writer: Writer, transaction: Transaction) -> None:
        self._reader = reader
        self._lister = lister
        self._writer = writer
        self._transaction = transaction

    async def turn(self, turn_id: str) -> TurnRecord | None:
        return self._reader.turn(turn_id)

    async def turns(self, key: ConversationKey, limit: int) -> list[TurnRecord]:
        return await self._lister.in_thread(lambda: self._lister.turns(key, limit))

    async def conversations(self, query: Query) -> Page[tuple[ConversationKey, Conversation]]:
        return await self._lister.in_thread(lambda: self._lister.conversations(query))

    async def forget(self, before: int) -> int:
        return await self._writer.run(lambda: self._transaction.forget(before, FORGOTTEN_AT_ONCE))


class SqliteLetters(Letters):
    """The turns that ended as dead letters."""

    def __init__(self, reader: SqliteReader, lister: SqliteReader, writer: Writer, transaction: Transaction) -> None:
        self._reader = reader
        self._lister = lister
        self._writer = writer
        self._transaction = transaction

    async def list(self, limit: int, cursor: str = "") -> Page[Letter]:
        return await self._lister.in_thread(lambda: self._lister.letters(limit, cursor))

    async def get(self, letter_id: str) -> Letter | None:
        return self._reader.letter(letter_id)

    async def retry(self, letter_id: str) -> Conversation | None:
        return await self._writer.run(lambda: self._transaction.retry_letter(letter_id))

    async def discard(self, letter_id: str) -> bool:
        return await self._writer.run(lambda: self._transaction.discard_letter(letter_id))
