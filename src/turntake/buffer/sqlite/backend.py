"""The backend on a SQLite file: writes share transactions, reads have a connection of their own.

How this works: the verbs of one conversation go through `TransactionQueue`, which decides them inside the transaction
that writes them. What is due and what readers ask is read on the event loop, on a connection that no commit can hold
up. The drafts of a claim are written by the commit thread's next transaction, together with whatever else waits. Their
rows may have changed by then, here or in another process; the version tells, so nothing is locked in between.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Self

import apsw
import msgspec

from turntake.buffer.codec import decode_conversation, read_message
from turntake.buffer.engine.backend import PAGE, UNREADABLE_MS, Backend, Due, Messages, Offer, Refusal
from turntake.buffer.engine.draft import NEW, Draft, Row
from turntake.buffer.engine.noted_time import go_on_from
from turntake.buffer.engine.store import CasStore
from turntake.buffer.open import Examined
from turntake.buffer.sqlite.archive import SqliteArchive
from turntake.buffer.sqlite.checkpoints import Checkpoints
from turntake.buffer.sqlite.commit_thread import CommitThread
from turntake.buffer.sqlite.documents import SqliteDocuments
from turntake.buffer.sqlite.examine import examine
from turntake.buffer.sqlite.file import log_of
from turntake.buffer.sqlite.hints import SqliteHints
from turntake.buffer.sqlite.noted_time import SqliteNotedTime
from turntake.buffer.sqlite.opening import Connections, open_file
from turntake.buffer.sqlite.queries import SQL, one, rows, run, unavailable_on_error
from turntake.buffer.sqlite.swap import Swap
from turntake.buffer.sqlite.transaction_queue import TransactionQueue
from turntake.buffer.sqlite.turnstile import Turnstile
from turntake.buffer.sqlite.url import path_of
from turntake.buffer.store import Hint
from turntake.clock import Clock
from turntake.errors import StoreUnavailable
from turntake.finding import Finding
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")

# Each waits ten seconds: five minutes in all, in which a file of a hundred million rows can be migrated.
START_TRIES = 30
# Bytes. One transaction may need this much; with less, messages are refused sooner or later.
LEAST_FREE = 1_048_576


class SqliteBackend(Backend):
    """One file, one shard, one writer: `TransactionQueue` says how much goes into one transaction."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = Path(path).absolute()
        self._clock = clock
        self.hints: SqliteHints = SqliteHints(self._path, clock)

    async def open(self) -> None:
        self._writer, self._reader, self._lister, copier = await self._connect()
        self._turnstile = Turnstile(log_of(self._path))
        self._checkpoints = Checkpoints(self._writer, copier)
        self._commits = CommitThread(self._writer, self._turnstile, self._checkpoints)
        self._swap = Swap(self._writer)
        self.archive: SqliteArchive = SqliteArchive(self._reader, self._lister, self._writer, self._commits)
        self.noted_time = SqliteNotedTime(self._reader, self._writer, self._commits, self._clock)
        self.documents = SqliteDocuments(self._reader, self._writer, self._commits)
        _, noted_at = await self.noted_time.read()
        go_on_from(noted_at, self._clock)

    async def close(self) -> None:
        await self._commits.close()
        self._turnstile.close()
        await asyncio.to_thread(self._checkpoints.close)
        self.archive.close()
        self._reader.close()
        await asyncio.to_thread(self._writer.close)

    async def probe(self) -> None:
        if shutil.disk_usage(self._path.parent).free < LEAST_FREE:
            raise StoreUnavailable(f"The disk is full: make room beside {self._path}.")
        await self.next_due()

    def shard_of(self, key: ConversationKey) -> int:
        return 0

    def new_queue(self) -> TransactionQueue:
        return TransactionQueue(self, self._commits, self._swap, self.hints, self._clock)

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        names = [str(key) for key in keys]
        with unavailable_on_error():
            loaded = self._load(names)
        return [loaded.get(name, NEW) for name in names]

    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        with unavailable_on_error():
            found = rows(self._read, "messages", str(key), head, tail)
        return {seq: read_message(raw, seq, at) for seq, at, raw in found}

    async def swap(self, shard: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        refusals = await self._commits.run(partial(self._swap.run, drafts), len(drafts))
        if hint is not None and None in refusals:
            self.hints.send(hint)
        return refusals

    @asynccontextmanager
    async def offer(
        self, limit: int, now: int, among: Sequence[ConversationKey] | None = None
    ) -> AsyncIterator["SqliteOffer"]:
        with unavailable_on_error():
            found = rows(self._read, "due", now, min(limit, PAGE)) if among is None else self._due_among(among, now)
        due: list[Due] = []
        for id, key, version, body in found:
            try:
                due.append(Due(ConversationKey.parse(key), Row(version, decode_conversation(body)), {}))
            except (ValueError, msgspec.MsgspecError):
                log.error("A conversation cannot be read", extra={"action": "claim", "row": id})
                await self._commits.run(partial(run, self._writer, "put_off", now + UNREADABLE_MS, id, version))
        yield SqliteOffer(self, due)

    async def next_due(self) -> int | None:
        with unavailable_on_error():
            row = one(self._read, "next_due")
        return None if row is None else int(row[0])

    async def repair(self, wrong: Sequence[Due]) -> None:
        """Sets the copies beside the body right: they are what the index is of."""
        bindings = [
            (due.row.conversation.state, due.row.conversation.due_at, str(due.key), due.row.version) for due in wrong
        ]
        repair = partial(self._writer.executemany, SQL["repair"], bindings)
        await self._commits.run(repair, len(bindings))

    @property
    def _read(self) -> apsw.Connection:
        """The writer's connection while nothing is written: it remembers pages that another one would have to read."""
        return self._writer if self._commits.is_idle else self._reader

    async def _connect(self) -> Connections:
        """Waits for a process that migrates a large file; it may still be stopped meanwhile."""
        for _ in range(START_TRIES - 1):
            try:
                return await asyncio.to_thread(open_file, self._path, self._clock.now())
            except StoreUnavailable:
                extra = {"action": "start", "path": str(self._path)}
                log.warning("Another process holds the SQLite file, perhaps to migrate it; waiting", extra=extra)
        return await asyncio.to_thread(open_file, self._path, self._clock.now())

    def _due_among(self, keys: Sequence[ConversationKey], now: int) -> list[Any]:
        found = (one(self._read, "due_by_key", str(key), now) for key in keys[:PAGE])
        return [row for row in found if row]

    def _load(self, names: Sequence[str]) -> dict[str, Row]:
        connection = self._read
        # In one transaction, since each statement would otherwise look for changes by other processes.
        with connection if len(names) > 1 else nullcontext():
            found = connection.executemany(SQL["load"], ((name,) for name in names))
            return {key: Row(version, decode_conversation(body)) for key, _, version, body in found}


class SqliteOffer(Offer):
    """Nothing is locked or reserved: whoever else takes a conversation first changes its version."""

    def __init__(self, backend: SqliteBackend, due: Sequence[Due]) -> None:
        self.due = due
        self._backend = backend

    async def take(self, drafts: Sequence[Draft]) -> list[bool]:
        return [refusal is None for refusal in await self._backend.swap(0, drafts, None)]

    async def repair(self, wrong: Sequence[Due]) -> None:
        await self._backend.repair(wrong)


class SqliteStore(CasStore, Examined):
    """Opened and closed by `async with`; several processes of one machine may share the file."""

    backend: SqliteBackend

    def __init__(self, path: str, clock: Clock) -> None:
        super().__init__(SqliteBackend(path, clock), clock)
        self.path = path

    def _new_queue(self, shard: int) -> TransactionQueue:
        return self.backend.new_queue()

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        """`sqlite:///turntake.db` is relative to the working directory, `sqlite:////var/lib/t.db` is absolute."""
        return cls(path_of(url), clock)

    @classmethod
    def examine(cls, url: str, clock: Clock) -> AsyncIterator[Finding]:
        return examine(Path(path_of(url)).absolute(), clock)
