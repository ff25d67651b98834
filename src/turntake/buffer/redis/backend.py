"""The backend on Redis or Valkey: rows are hashes, a shard has one index of deadlines, and scripts compare and swap."""

import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from redis.asyncio import RedisCluster

from turntake.buffer.engine.backend import Backend, Messages, Refusal
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.redis.archive import NEVER, RedisArchive
from turntake.buffer.redis.claiming import Claiming, RedisOffer
from turntake.buffer.redis.examine import refuse_unsafe
from turntake.buffer.redis.hints import RedisHints
from turntake.buffer.redis.multiplexer import Multiplexer
from turntake.buffer.redis.redis_py_patches import patch
from turntake.buffer.redis.repair import Repair
from turntake.buffer.redis.rows import Rows
from turntake.buffer.redis.scripts import SWAP
from turntake.buffer.redis.shards import Shards
from turntake.buffer.redis.swap import ANY_TIME, SwapCall
from turntake.buffer.redis.url import (
    CLUSTER_SHARDS,
    Client,
    Options,
    connect,
    database_of,
    hang_up,
    options_of,
    unavailable_on_error,
)
from turntake.buffer.store import Hint
from turntake.clock import Clock
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")

FORMAT = 1
BEHIND_MS = 1_000
LONGEST_BEHIND_MS = 60_000


class RedisBackend(Backend):
    """`lost` counts acknowledged messages that a failover is known to have taken away."""

    # A script keeps everybody else waiting, workers too: short ones, one at a time, cost hardly any speed.
    writers = 1
    batch = 24

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._options: Options = options_of(url)
        self._behind_ms = BEHIND_MS
        self._seen: dict[int, tuple[int, int]] = {}
        self.lost = 0

    async def open(self) -> None:
        self._client: Client = connect(self._url)
        self._connections = patch(self._client)
        self._line = self._client if self._options.is_cluster else Multiplexer(self._client)
        channel = f"{self._options.prefix}:{database_of(self._client)}:hints"
        self.hints: RedisHints = RedisHints(self._client, channel, self._clock)
        try:
            with unavailable_on_error():
                await refuse_unsafe(self._client)
                self.shards = await self._agree_on_shards()
                self._rows = Rows(self._client, Shards(self._options.prefix, self.shards))
                self.archive = RedisArchive(self._rows)
                self._repair = Repair(self._rows, self._options.prefix)
                self._claiming = Claiming(self._line, self._rows, self._repair, self._swap_claims)
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

    async def swap(self, shard: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        return await self._swap(shard, drafts, hint, self._options.wait)

    async def _swap_claims(self, shard: int, drafts: Sequence[Draft]) -> list[Refusal | None]:
        """Nobody is told of a claim, so no replica need have it: refused for want of one, it would hold for nobody."""
        return await self._swap(shard, drafts, None, 0)

    async def _swap(
        self, shard: int, drafts: Sequence[Draft], hint: Hint | None, replicas: int
    ) -> list[Refusal | None]:
        behind_ms = self._behind_ms if self._clock.is_followed else ANY_TIME
        call = SwapCall(self._rows.shards[shard], drafts, self.hints.channel, hint, behind_ms)
        with unavailable_on_error():
            reply = call.read(await self._write(call.keys, call.args, replicas))
        self._clock.follow(reply.server_at)
        self._behind_ms = min(2 * self._behind_ms, LONGEST_BEHIND_MS) if reply.is_late else BEHIND_MS
        if reply.is_late:
            return reply.refusals
        added = sum(len(draft.added) for draft, refusal in zip(drafts, reply.refusals, strict=True) if refusal is None)
        self._count(shard, reply.server_at, reply.messages, added)
        return reply.refusals

    def offer(self, limit: int, now: int) -> AbstractAsyncContextManager[RedisOffer]:
        return self._claiming.offer(limit, now)

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        return await self._rows.load(keys)

    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        return await self._rows.messages(key, head, tail)

    async def next_due(self) -> int | None:
        with unavailable_on_error():
            heads = await self._rows.shards.ask_reachable(
                lambda shard: self._line.execute_command("ZRANGE", shard.due, 0, 0, "WITHSCORES")
            )
        earliest = min((float(score) for head in heads for score in head[1:]), default=NEVER)
        return None if earliest == NEVER else int(earliest)

    async def rebuild(self) -> int:
        return await self._repair.run()

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
        anywhere = {"target_nodes": RedisCluster.RANDOM} if isinstance(self._client, RedisCluster) else {}
        seconds, micros = await self._client.time(**anywhere)
        self._clock.follow(seconds * 1000 + micros // 1000)
        seen = await self._rows.shards.ask_all(lambda shard: self._client.hget(shard.counts, "seen"))
        self._clock.not_before(max(int(at or 0) for at in seen))

    async def _write(self, keys: Sequence[str], args: Sequence[Any], replicas: int) -> Any:
        if not replicas:
            return await SWAP(self._line, keys, args)
        answer, is_safe = await SWAP.replicated(self._client, keys, args, replicas, self._options.wait_ms)
        if not is_safe:
            raise StoreUnavailable("Too few replicas had the write in time; it is not acknowledged, so send it again.")
        return answer

    def _count(self, shard: int, at: int, messages: int, added: int) -> None:
        """Messages only ever grow in number: a server that had fewer before this write lost some in a failover."""
        seen_at, seen = self._seen.get(shard, (0, 0))
        if at <= seen_at:
            return
        self._seen[shard] = at, messages
        lost = seen - (messages - added)
        if lost > 0:
            self.lost += lost
            log.error(
                "The store lost messages that were acknowledged, as after a failover without WAIT",
                extra={"action": "write", "shard": shard, "lost": lost},
            )
