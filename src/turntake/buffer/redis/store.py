"""The Redis or Valkey store: the engine on a Redis backend."""

from collections.abc import AsyncIterator
from typing import Self

from turntake.buffer.engine.store import CasStore
from turntake.buffer.open import Examined, Maintained
from turntake.buffer.redis.backend import RedisBackend
from turntake.buffer.redis.examine import examine
from turntake.clock import Clock
from turntake.finding import Finding


class RedisStore(CasStore, Examined, Maintained):
    """`redis://`, `rediss://`, `valkey://`; with `+cluster` a cluster, with `+sentinel` whatever Sentinel points at."""

    backend: RedisBackend

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        return cls(RedisBackend(url, clock), clock)

    @classmethod
    def examine(cls, url: str, clock: Clock) -> AsyncIterator[Finding]:
        return examine(url, clock)

    async def rebuild(self) -> int:
        return await self.backend.rebuild()

    async def finish_upgrade(self) -> list[str]:
        return []
