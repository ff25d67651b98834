"""The Redis or Valkey store: the shared store on a Redis shelf."""

from typing import Self

from turntake.buffer.redis.shelf import RedisShelf
from turntake.buffer.shared.store import SharedStore
from turntake.clock import Clock


class RedisStore(SharedStore):
    """`redis://`, `rediss://`, `valkey://`; with `+cluster` a cluster, with `+sentinel` whatever Sentinel points at."""

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        return cls(RedisShelf(url, clock), clock)
