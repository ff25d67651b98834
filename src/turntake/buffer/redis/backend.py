"""The backend on Redis or Valkey: rows are hashes, a shard has one index of deadlines, and scripts compare and swap."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self

from redis.asyncio import RedisCluster

from turntake.buffer.engine.backend import Backend, Messages, Refusal
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.engine.store import CasStore
from turntake.buffer.open import Examined, Maintained
from turntake.buffer.redis.archive import NEVER, RedisArchive
from turntake.buffer.redis.claiming import RedisOffer
from turntake.buffer.redis.examine import examine, refuse_unsafe
from turntake.buffer.redis.hints import RedisHints
from turntake.buffer.redis.multiplexer import Multiplexer
from turntake.buffer.redis.redis_py_patches import patch
from turntake.buffer.redis.repair import Repair
from turntake.buffer.redis.rows import Rows
from turntake.buffer.redis.shards import Shards
from turntake.buffer.redis.swap import Swapper
from turntake.buffer.redis.url import (
    CLUSTER_SHARDS,
    Client,
    RedisOptions,
    connect,
    database_of,
    hang_up,
    options_of,
    unavailable_on_error,
)
from turntake.buffer.store import Hint
from turntake.clock import Clock
from turntake.errors import ConfigurationError
from turntake.finding import Finding
from turntake.rules.key import ConversationKey

FORMAT = 1
"""Of the names and fields in keys.py. A later release that this one could not work beside would count it up."""


class RedisBackend(Backend):
    """Two ways lead to the server: `commands` for what happens with every message, redis-py's client for the rest."""

    # A script keeps everybody else waiting, workers too. One call at a time with 24 drafts takes half a millisecond of
    # Redis; larger batches, or more of them at once, would make claims wait and appends hardly any faster.
    writers = 1
    batch = 24

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._options: RedisOptions = options_of(url)

    async def open(self) -> None:
        self._client: Client = connect(self._url)
        self._connections = patch(self._client)
        # A cluster's client must choose a node for each call, which the multiplexer cannot.
        self._commands: Client = self._client if self._options.is_cluster else Multiplexer(self._client)
        channel = f"{self._options.prefix}:{database_of(self._client)}:hints"
        self.hints: RedisHints = RedisHints(self._client, channel, self._clock)
        self._swapper = Swapper(self._client, self._commands, self._options, channel, self._clock)
        try:
            with unavailable_on_error():
                await refuse_unsafe(self._client)
                self.shards = await self._agree_on_shards()
                self._rows = Rows(self._client, Shards(self._options.prefix, self.shards))
                self._repair = Repair(self._rows, self._options.prefix)
                self.archive = RedisArchive(self._rows)
                await self._set_clock()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await hang_up(self._client)
        for connection in list(self._connections):
            await connection.disconnect(nowait=True)

    def shard_of(self, key: ConversationKey) -> int:
        return key.shard_hash % self.shards if self.shards > 1 else 0

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        return await self._rows.load(keys)

    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        return await self._rows.messages(key, head, tail)

    async def swap(self, shard: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        return await self._swapper.swap(self._rows.shards[shard], drafts, hint, self._options.wait)

    @asynccontextmanager
    async def offer(self, limit: int, now: int) -> AsyncIterator[RedisOffer]:
        offer = RedisOffer(self._commands, self._rows, self._repair, self._swapper)
        await offer.reserve(limit, now)
        yield offer

    async def next_due(self) -> int | None:
        with unavailable_on_error():
            heads = await self._rows.shards.ask_reachable(
                lambda shard: self._commands.execute_command("ZRANGE", shard.due, 0, 0, "WITHSCORES")
            )
        earliest = min((float(score) for head in heads for score in head[1:]), default=NEVER)
        return None if earliest == NEVER else int(earliest)

    async def times(self) -> tuple[int, int]:
        anywhere = {"target_nodes": RedisCluster.RANDOM} if isinstance(self._client, RedisCluster) else {}
        with unavailable_on_error():
            seconds, micros = await self._client.time(**anywhere)
            seen = await self._rows.shards.ask_all(lambda shard: self._client.hget(shard.counts, "seen"))
        return seconds * 1000 + micros // 1000, max(int(at or 0) for at in seen)

    async def note_time(self, at: int) -> None:
        with unavailable_on_error():
            await self._rows.shards.ask_all(lambda shard: self._client.hset(shard.counts, "seen", at))

    async def rebuild(self) -> int:
        return await self._repair.run()

    @property
    def lost(self) -> int:
        """How many acknowledged messages a failover is known to have taken away."""
        return self._swapper.lost

    async def _agree_on_shards(self) -> int:
        """How many there are is fixed by whoever comes first; a later URL may only repeat it."""
        name, wanted = f"{self._options.prefix}:meta", self._options.shards
        default = CLUSTER_SHARDS if self._options.is_cluster else 1
        await self._client.hsetnx(name, "format", FORMAT)
        written = int(await self._client.hget(name, "format"))
        if written > FORMAT:
            raise ConfigurationError(
                f"The store has format {written}, this release knows {FORMAT}: install a newer turntake."
            )
        await self._client.hsetnx(name, "shards", wanted or default)
        shards = int(await self._client.hget(name, "shards"))
        if wanted is not None and wanted != shards:
            raise ConfigurationError(
                f"The store was made with {shards} shards, which cannot change; write shards={shards} or leave it out."
            )
        return shards

    async def _set_clock(self) -> None:
        """The server's time rules, and never falls behind what the data has seen."""
        server_at, seen_at = await self.times()
        self._clock.follow(server_at)
        self._clock.resume(seen_at)


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
        """Nothing: the format never changed."""
        return []
