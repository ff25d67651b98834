"""The SQLite store: the verbs go through the one writer, reads through a connection of their own."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import apsw

from turntake.buffer.sqlite.reader import SqliteHistory, SqliteLetters, SqliteReader
from turntake.buffer.sqlite.schema import WRITER_CACHE_KIB, connect, migrate, network_file_system
from turntake.buffer.sqlite.transaction import Transaction
from turntake.buffer.sqlite.writer import Writer
from turntake.buffer.store import Store
from turntake.clock import Clock
from turntake.errors import ConfigurationError
from turntake.rules.conversation import Conversation, Progress, Settlement, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.records import Append, Appended, Claim, Snapshot
from turntake.rules.rules import Rules

log = logging.getLogger("turntake")

NOTICEABLE_MS = 60_000


class SqliteStore(Store):
    """Opened and closed by `async with`; several processes of one machine may share the file."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self.clock = clock

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        """`sqlite:///turntake.db` is relative to the working directory, `sqlite:////var/lib/t.db` is absolute."""
        path = url.removeprefix("sqlite:///")
        if path == url or not path or path == ":memory:":
            raise ConfigurationError("A SQLite store is written sqlite:///path/to/file.db; in memory, use memory://.")
        return cls(path, clock)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._open)
        self._catch_up()
        self._transaction = Transaction(self._connection)
        self._writer = Writer(
            self._connection,
            on_begin=lambda: self._transaction.begin(self.clock.now()),
            before_commit=self._transaction.write_back,
        )
        self.history = SqliteHistory(self._reader, self._lister, self._writer, self._transaction)
        self.letters = SqliteLetters(self._reader, self._lister, self._writer, self._transaction)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._writer.close()
        self._reader.close()
        self._lister.close()
        await asyncio.to_thread(self._connection.close)

    def _catch_up(self) -> None:
        seen_at = self._reader.seen_at()
        behind_ms = seen_at - self.clock.now()
        if behind_ms > NOTICEABLE_MS:
            log.warning("The clock is behind the store's; going on from there", extra={"behind_ms": behind_ms})
        self.clock.not_before(seen_at)

    def _open(self) -> None:
        refuse_network(Path(self.path).resolve())
        try:
            self._connection = connect(self.path, WRITER_CACHE_KIB)
            migrate(self._connection)
            self._reader = SqliteReader(connect(self.path))
            self._lister = SqliteReader(connect(self.path))
        except apsw.Error as error:
            raise ConfigurationError(f"Cannot open the SQLite file {self.path}: {error}") from error

    async def append(self, arrivals: Sequence[Append]) -> list[Appended]:
        return await self._writer.run(lambda: self._transaction.append(arrivals), len(arrivals), is_new=True)

    async def touch(self, key: ConversationKey, order: Touch, rules: Rules) -> Conversation | None:
        return await self._writer.run(lambda: self._transaction.touch(key, order, rules))

    async def claim(self, limit: int, lease_ms: int) -> list[Claim]:
        return await self._writer.run(lambda: self._transaction.claim(limit, lease_ms))

    async def extend(self, claims: Sequence[Claim], lease_ms: int) -> list[bool]:
        return await self._writer.run(lambda: self._transaction.extend(claims, lease_ms))

    async def save(self, claim: Claim, progress: Progress) -> bool:
        return await self._writer.run(lambda: self._transaction.save(claim, progress))

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        return await self._writer.run(lambda: self._transaction.settle(claim, settlement))

    async def next_due(self) -> int | None:
        return self._reader.next_due()

    async def find(self, key: ConversationKey) -> Snapshot | None:
        return self._reader.find(key)


def refuse_network(path: Path) -> None:
    """The write-ahead log needs shared memory, which a network file system does not give."""
    with suppress(OSError):
        kind = network_file_system(path, Path("/proc/mounts").read_text())
        if kind:
            raise ConfigurationError(
                f"{path} is on a network file system ({kind}), where SQLite loses data; use a local disk, "
                "or another store."
            )
