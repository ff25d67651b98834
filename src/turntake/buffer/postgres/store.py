"""The PostgreSQL store: the shared verbs on rows in PostgreSQL."""

from collections.abc import AsyncIterator
from typing import Self

from turntake.buffer.engine.store import SharedStore
from turntake.buffer.open import Examined
from turntake.buffer.postgres.backend import PostgresShelf
from turntake.buffer.postgres.examine import examine
from turntake.buffer.postgres.url import Address
from turntake.clock import Clock
from turntake.finding import Finding


class PostgresStore(SharedStore, Examined):
    """Opened and closed by `async with`; any number of processes may share the database."""

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        """`postgresql://user:password@host:5432/database`; `?schema=` names another schema than `turntake`."""
        return cls(PostgresShelf(Address.of(url), clock), clock)

    @classmethod
    def examine(cls, url: str, clock: Clock) -> AsyncIterator[Finding]:
        return examine(url, clock)
