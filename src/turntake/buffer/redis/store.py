"""The Redis or Valkey store: the shared store on a Redis shelf."""

from collections.abc import AsyncIterator
from typing import Self

from turntake.buffer.engine.store import SharedStore
from turntake.buffer.open import Examined
from turntake.buffer.redis.backend import RedisShelf
from turntake.buffer.redis.examine import examine
from turntake.clock import Clock
from turntake.finding import Finding


class RedisStore(SharedStore, Examined):
    """`redis://`, `rediss://`, `valkey://`; with `+cluster` a cluster, with `+sentinel` whatever Sentinel points at."""

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        return cls(RedisShelf(url, clock), clock)

    @classmethod
    def examine(cls, url: str, clock: Clock) -> AsyncIterator[Finding]:
        return examine(url, clock)
