"""The PostgreSQL store: the engine on rows in PostgreSQL."""

from collections.abc import AsyncIterator
from typing import Self

from turntake.buffer.engine.store import CasStore
from turntake.buffer.open import Examined, Maintained
from turntake.buffer.postgres.backend import PostgresBackend
from turntake.buffer.postgres.examine import examine
from turntake.buffer.postgres.url import Address
from turntake.clock import Clock
from turntake.finding import Finding


class PostgresStore(CasStore, Examined, Maintained):
    """Opened and closed by `async with`; any number of processes may share the database."""

    backend: PostgresBackend

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        """`postgresql://user:password@host:5432/database`; `?schema=` names another schema than `turntake`."""
        return cls(PostgresBackend(Address.of(url), clock), clock)

    @classmethod
    def examine(cls, url: str, clock: Clock) -> AsyncIterator[Finding]:
        return examine(url, clock)

    async def rebuild(self) -> int:
        return await self.backend.rebuild()

    async def finish_upgrade(self) -> list[str]:
        return await self.backend.finish_upgrade()
