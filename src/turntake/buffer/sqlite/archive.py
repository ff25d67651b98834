"""What happened, read from SQLite on a connection of its own, so that no reader ever waits for a commit.

Listings may take a while, so a thread reads them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import apsw

from turntake.buffer.codec import decode_closed, decode_conversation
from turntake.buffer.cursor import Cursor
from turntake.buffer.engine.archive import Archive, TurnRow, looked
from turntake.buffer.engine.draft import NEW, Row
from turntake.buffer.sqlite.commit_thread import CommitThread
from turntake.buffer.sqlite.queries import one, rows, run, unavailable_on_error
from turntake.clock import NEVER
from turntake.rules.conversation import Closed
from turntake.rules.key import ConversationKey
from turntake.rules.records import ClosedPoint, IsChosen, Looked

# What forgetting may hold up writers for, at most: it tries again a minute later.
CHECKPOINT_BUSY_MS = 100

T = TypeVar("T")


class SqliteArchive(Archive):
    """Reads short answers with `reader` and lists with `lister`, which it owns; forgets on the writer's connection."""

    def __init__(
        self, reader: apsw.Connection, lister: apsw.Connection, writer: apsw.Connection, commits: CommitThread
    ) -> None:
        self._reader = reader
        self._lister = lister
        self._writer = writer
        self._commits = commits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="turntake-sqlite-lister")
        self._is_in_log = False

    def close(self) -> None:
        self._thread.shutdown()
        self._lister.close()

    async def turn(self, turn_id: str) -> TurnRow | None:
        with unavailable_on_error():
            row = one(self._reader, "turn", turn_id)
        return None if row is None else _turn(*row)

    async def turns(self, key: ConversationKey, limit: int, before: tuple[int, int] | None = None) -> list[TurnRow]:
        return await self._list(_turn, "turns", str(key), limit, *(before or (NEVER, NEVER)))

    async def letters(self, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        at, letter_id = before or (NEVER, "")
        return await self._list(_turn, "letters", at, letter_id, limit)

    async def conversations(self, after: Cursor | None, limit: int) -> list[tuple[Cursor, Row]]:
        due_at, key = after or Cursor(0, "")
        page: list[tuple[Cursor, Row]] = []
        if due_at is not None:
            page = await self._list(_listed, "waiting", due_at, key, limit)
            key = ""
        if len(page) < limit:
            page += await self._list(_idle, "idle", key, limit - len(page))
        return page

    async def due(self, after: Cursor | None, limit: int, now: int) -> list[tuple[int, str]]:
        with unavailable_on_error():
            return rows(self._reader, "due_keys", now, *(after or (0, "")), limit)

    async def forget(self, before: int, ids_before: int, limit: int) -> int:
        forgotten = await self._commits.run(lambda: self._forget(before, ids_before, limit), 2 * limit)
        await self._forgot(forgotten, limit)
        return forgotten

    async def forget_chosen(
        self, is_chosen: IsChosen, after: ClosedPoint, before: int, ids_before: int, limit: int
    ) -> Looked:
        page = await self._list(_closed, "closed_after", *after, before, limit)
        chosen = [(conversation, row) for conversation, row in page if is_chosen(row.key, row.agent)]
        if chosen:
            await self._commits.run(lambda: self._forget_still_closed(chosen, before, ids_before), len(chosen))
            await self._forgot(len(chosen), limit)
        return looked([row for _, row in page], len(chosen), after, limit)

    async def _forgot(self, forgotten: int, limit: int) -> None:
        self._is_in_log |= forgotten > 0
        if self._is_in_log and forgotten < limit:
            self._is_in_log = not await self._in_thread(self._empty_log)

    async def _list(self, read: Callable[..., T], query: str, *bindings: Any) -> list[T]:
        def list_rows() -> list[T]:
            with unavailable_on_error():
                return [read(*row) for row in rows(self._lister, query, *bindings)]

        return await self._in_thread(list_rows)

    async def _in_thread(self, action: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, action)

    def _empty_log(self) -> bool:
        """What was forgotten is gone from the database, and must go from the log too. False if others use the log.

        Nearly all of it is copied while others go on writing; only the rest, which came meanwhile, holds them up.
        """
        try:
            self._lister.set_busy_timeout(CHECKPOINT_BUSY_MS)
            self._lister.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._lister.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error:
            return False
        return True

    def _forget(self, before: int, ids_before: int, limit: int) -> int:
        ids = rows(self._writer, "old_ids", ids_before, limit)
        for conversation, message_id in ids:
            run(self._writer, "drop_part", conversation, message_id)
        turns = rows(self._writer, "closed_before", before, limit)
        for conversation, body in turns:
            self._forget_turn(conversation, decode_closed(body), ids_before)
        for conversation in {conversation for conversation, _ in (*ids, *turns)}:
            run(self._writer, "drop_empty", conversation)
        return len(ids) + len(turns)

    def _forget_still_closed(self, turns: list[tuple[int, TurnRow]], before: int, ids_before: int) -> None:
        """Those that were not opened again since they were read."""
        for conversation, row in turns:
            now = one(self._writer, "turn", row.id)
            closed = None if now is None else _turn(*now)
            if closed is not None and closed.closed is not None and not closed.is_letter and closed.closed.at < before:
                self._forget_turn(conversation, closed.closed, ids_before)
        for conversation in {conversation for conversation, _ in turns}:
            run(self._writer, "drop_empty", conversation)

    def _forget_turn(self, conversation: int, closed: Closed, ids_before: int) -> None:
        numbers = conversation, closed.numbers.start, closed.tail
        if closed.status != "interrupted":  # else its messages are another turn's by now
            if closed.at < ids_before:
                run(self._writer, "drop_ids", *numbers)
            else:
                run(self._writer, "keep_ids", *numbers, closed.at)
            run(self._writer, "drop_messages", *numbers)
        run(self._writer, "drop_turn", conversation, closed.head, closed.first_tail)


def _turn(key: str, turn_id: str, body: bytes | None, letter_at: int | None) -> TurnRow:
    closed = None if body is None else decode_closed(body)
    return TurnRow(ConversationKey.parse(key), turn_id, closed, letter_at is not None)


def _closed(conversation: int, key: str, turn_id: str, body: bytes) -> tuple[int, TurnRow]:
    return conversation, _turn(key, turn_id, body, None)


def _listed(due_at: int | None, key: str, version: int, body: bytes) -> tuple[Cursor, Row]:
    return Cursor(due_at, key), Row(version, decode_conversation(body))


def _idle(key: str, version: int, body: bytes | None) -> tuple[Cursor, Row]:
    return Cursor(None, key), NEW if body is None else Row(version, decode_conversation(body))
