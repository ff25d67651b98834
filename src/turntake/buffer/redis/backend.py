"""The backend on Redis or Valkey: rows are hashes, a shard has one index of deadlines, and scripts compare and swap."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Self

from turntake.buffer.engine.backend import PAGE, Backend, Messages, Refusal
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.engine.noted_time import go_on_from
from turntake.buffer.engine.store import CasStore
from turntake.buffer.open import Examined, Maintained
from turntake.buffer.redis.archive import RedisArchive
from turntake.buffer.redis.claiming import Claiming, RedisOffer
from turntake.buffer.redis.documents import RedisDocuments
from turntake.buffer.redis.examine import examine, refuse_unsafe
from turntake.buffer.redis.hints import RedisHints
from turntake.buffer.redis.lookout import RedisLookout
from turntake.buffer.redis.multiplexer import Multiplexer
from turntake.buffer.redis.nodes import WRITE_PATIENCE_MS, Nodes
from turntake.buffer.redis.noted_time import RedisNotedTime
from turntake.buffer.redis.primary_watch import PrimaryWatch
from turntake.buffer.redis.redis_py_patches import patch
from turntake.buffer.redis.repair import Repair
from turntake.buffer.redis.rows import Rows
from turntake.buffer.redis.shards import Shards
from turntake.buffer.redis.swap import Swapper
from turntake.buffer.redis.url import (
    CLUSTER_SHARDS,
    UNREACHABLE,
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

CALLS_REMEMBERED_MS = 3_600_000  # a call is repeated within seconds, or minutes if a server or process was paused
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
        self.documents = RedisDocuments(self._client, self._options)
        self._swapper = Swapper(self._client, self._commands, self._options, channel, self._clock)
        self._closing = AsyncExitStack()
        self._closing.push_async_callback(self._hang_up)
        self._primary = PrimaryWatch(self._client, self._clock)
        self._primary.open()
        self._closing.push_async_callback(self._primary.close)
        try:
            with unavailable_on_error:
                await refuse_unsafe(self._client)
                self.shards = await self._known_shards()
                self._divide(Shards(self._options.prefix, self.shards))
                await self._set_clock()
        except BaseException:
            await self.close()
            raise

    def _divide(self, shards: Shards) -> None:
        """What can be made only once the number of shards is known."""
        self._rows = Rows(self._client, self._commands, shards)
        self._repair = Repair(self._rows, self._options.prefix)
        self._nodes = Nodes(self._client, shards)
        self._closing.callback(self._nodes.close)
        self.noted_time = RedisNotedTime(self._client, shards, self._nodes)
        self.lookout: RedisLookout = RedisLookout(
            self._client, self._commands, self._options.prefix, shards, self._nodes
        )
        self.archive = RedisArchive(self._rows, self.lookout)
        self._claiming = Claiming(self._commands, self._rows, self._repair, self._swapper, self.lookout, self._nodes)

    async def close(self) -> None:
        await self._closing.aclose()

    async def _hang_up(self) -> None:
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
        if self.shards > 1:  # the only shard there is is looked at anyway
            for draft in drafts:
                # Before the write: a look that is under way meanwhile may not see it.
                self.lookout.expect(shard, draft.conversation.due_at)
        swap = partial(self._swapper.swap, self._rows.shards[shard], drafts, hint, self._options.wait)
        return await (self._nodes.unless_away(shard, swap) if self._nodes.is_cluster else swap())

    @asynccontextmanager
    async def offer(
        self, limit: int, now: int, among: Sequence[ConversationKey] | None = None
    ) -> AsyncIterator[RedisOffer]:
        offer = RedisOffer(self._claiming)
        if among is None:
            await offer.reserve(limit, now)
        else:
            await offer.reserve_among(among, now)
        yield offer

    async def next_due(self) -> int | None:
        return await self.lookout.next_due()

    async def probe(self) -> None:
        """A call without drafts changes nothing, tells the time, and is refused by a server that takes no writes. Nodes
        that are away keep nobody from the others."""
        shards = self._rows.shards
        nodes = self._nodes.with_their_shards(range(len(shards)))
        asked = {name: partial(self._swapper.swap, shards[numbers[0]], []) for name, numbers in nodes.items()}
        await self._nodes.ask(asked, WRITE_PATIENCE_MS)

    async def rebuild(self) -> int:
        return await self._repair.run()

    @property
    def lost(self) -> int:
        """How many acknowledged messages a failover is known to have taken away."""
        return self._swapper.lost

    async def _known_shards(self) -> int:
        """The node of a cluster that has it written down may be away: then the URL is believed, if it says so."""
        try:
            return await self._agree_on_shards()
        except UNREACHABLE:
            if not (self._options.is_cluster and self._options.shards):
                raise
            return self._options.shards

    async def _agree_on_shards(self) -> int:
        """How many there are is fixed by whoever comes first; a later URL may only repeat it."""
        name, wanted = f"{self._options.prefix}:meta", self._options.shards
        default = CLUSTER_SHARDS if self._options.is_cluster else 1
        written = int(await self._written_once(name, "format", FORMAT))
        if written > FORMAT:
            raise ConfigurationError(
                f"The store has format {written}, this release knows {FORMAT}: install a newer turntake."
            )
        shards = int(await self._written_once(name, "shards", wanted or default))
        if wanted is not None and wanted != shards:
            raise ConfigurationError(
                f"The store was made with {shards} shards, which cannot change; write shards={shards} or leave it out."
            )
        return shards

    async def _written_once(self, name: str, field: str, value: int) -> bytes:
        """What is written there, or this. It reads first: a full server must not keep a worker from starting."""
        written: bytes | None = await self._client.hget(name, field)
        if written is None:
            await self._client.hsetnx(name, field, value)
            written = await self._client.hget(name, field)
        assert written is not None
        return written

    async def _set_clock(self) -> None:
        """The server's time rules, and goes on from what the data has seen."""
        server_at, seen_at = await self.noted_time.read()
        self._clock.follow(server_at)
        await self.probe()
        go_on_from(seen_at, self._clock)
        nodes = self._nodes.with_their_shards(range(len(self._rows.shards)))
        await self._nodes.ask({name: partial(self._forget_processes, own) for name, own in nodes.items()})

    async def _forget_processes(self, numbers: Sequence[int]) -> None:
        """Every process leaves its latest calls behind; nobody repeats those of an hour ago."""
        oldest_at = self._clock.now() - CALLS_REMEMBERED_MS
        scan = ("MATCH", "d*", "COUNT", PAGE)
        commands = [("HSCAN", self._rows.shards[number].counts, 0, *scan) for number in numbers]
        scans: list[tuple[int, dict[bytes, bytes]]] = await self._nodes.pipelined(numbers[0], commands)
        for number, (_, memories) in zip(numbers, scans, strict=True):
            old = [field for field, memory in memories.items() if int(memory.split()[0]) < oldest_at]
            if old:
                await self._client.hdel(self._rows.shards[number].counts, *old)


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
