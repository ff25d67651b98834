"""The shelf on Redis or Valkey: rows are hashes, a shard has one index of deadlines, and scripts compare and swap."""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from redis.asyncio import RedisCluster

from turntake.buffer.codec import encode
from turntake.buffer.cursor import Place
from turntake.buffer.engine.backend import PAGE, Messages, Refusal, Shelf, TurnRow
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.redis.claiming import Claimed, Claiming, Decide
from turntake.buffer.redis.examine import refuse_unsafe
from turntake.buffer.redis.index import page
from turntake.buffer.redis.keys import MEMBER_DIGITS, Shard, member, shard_hash_of
from turntake.buffer.redis.multiplexer import Multiplexer
from turntake.buffer.redis.redis_py_patches import patch
from turntake.buffer.redis.repair import Repair
from turntake.buffer.redis.rows import Rows
from turntake.buffer.redis.scripts import FORGET, SWAP
from turntake.buffer.redis.shards import Shards
from turntake.buffer.redis.swap import ANY_TIME, SwapCall, encode_hint
from turntake.buffer.redis.url import (
    CLUSTER_SHARDS,
    UNREACHABLE,
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
RECONNECT_MS = 1_000
NEVER = float("inf")


_decode_hint = msgspec.json.Decoder(Hint).decode


class RedisShelf(Shelf):
    """One lane a shard. `lost` counts acknowledged messages that a failover is known to have taken away."""

    # A script keeps everybody else waiting, workers too: short ones, one at a time, cost hardly any speed.
    flights = 1
    batch = 24

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._options: Options = options_of(url)
        self._channel = ""
        self._behind_ms = BEHIND_MS
        self._seen: dict[int, tuple[int, int]] = {}
        self.lost = 0

    async def open(self) -> None:
        self._client: Client = connect(self._url)
        self._connections = patch(self._client)
        self._line = self._client if self._options.is_cluster else Multiplexer(self._client)
        self._channel = f"{self._options.prefix}:{database_of(self._client)}:hints"
        try:
            with unavailable_on_error():
                await refuse_unsafe(self._client)
                self.lanes = await self._agree_on_shards()
                self._rows = Rows(self._client, Shards(self._options.prefix, self.lanes))
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

    def lane(self, key: ConversationKey) -> int:
        return key.place % self.lanes if self.lanes > 1 else 0

    async def swap(self, lane: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        return await self._swap(lane, drafts, hint, self._options.wait)

    async def _swap_claims(self, lane: int, drafts: Sequence[Draft]) -> list[Refusal | None]:
        """Nobody is told of a claim, so no replica need have it: refused for want of one, it would hold for nobody."""
        return await self._swap(lane, drafts, None, 0)

    async def _swap(self, lane: int, drafts: Sequence[Draft], hint: Hint | None, replicas: int) -> list[Refusal | None]:
        behind_ms = self._behind_ms if self._clock.is_followed else ANY_TIME
        call = SwapCall(self._rows.shards[lane], drafts, self._channel, hint, behind_ms)
        with unavailable_on_error():
            reply = call.read(await self._write(call.keys, call.args, replicas))
        self._clock.follow(reply.server_at)
        self._behind_ms = min(2 * self._behind_ms, LONGEST_BEHIND_MS) if reply.is_late else BEHIND_MS
        if reply.is_late:
            return reply.refusals
        added = sum(len(draft.added) for draft, refusal in zip(drafts, reply.refusals, strict=True) if refusal is None)
        self._count(lane, reply.server_at, reply.messages, added)
        return reply.refusals

    async def claim(self, limit: int, now: int, decide: Decide) -> Claimed:
        return await self._claiming.claim(limit, now, decide)

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

    async def turn(self, turn_id: str) -> TurnRow | None:
        shard_hash = shard_hash_of(turn_id)
        if shard_hash is None:
            return None
        (row,) = await self._rows.turns(self._rows.shards.of(shard_hash), [turn_id])
        return row

    async def turns(self, key: ConversationKey, limit: int) -> list[TurnRow]:
        shard = self._rows.shards.of(key.place)
        with unavailable_on_error():
            members = await self._client.zrange(shard.turns(key), 0, min(limit, PAGE) - 1, desc=True)
        rows = await self._rows.turns(shard, [name.decode()[MEMBER_DIGITS:] for name in members])
        return [row for row in rows if row]

    async def letters(self, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        limit = min(limit, PAGE)
        parts = await self._rows.shards.ask_all(lambda shard: self._letters(shard, limit, before))
        rows = sorted((row for part in parts for row in part), key=_letter_order, reverse=True)
        return rows[:limit]

    async def index(self, after: Place | None, limit: int) -> list[tuple[Place, Row]]:
        place = None if after is None else (NEVER if after[0] is None else float(after[0]), after[1])
        with unavailable_on_error():
            parts = await self._rows.shards.ask_all(lambda shard: page(self._client, shard.due, limit, place))
        entries = sorted(entry for part in parts for entry in part)[:limit]
        places: list[Place] = [(None if score == NEVER else int(score), key) for score, key in entries]
        return list(zip(places, await self.load([ConversationKey.parse(key) for _, key in places]), strict=True))

    async def forget(self, before: int, limit: int) -> int:
        dropped = 0
        for shard in self._rows.shards:
            if dropped < limit:
                with unavailable_on_error():
                    dropped += await self._forget(shard, before, limit - dropped)
        return dropped

    async def rebuild(self) -> int:
        return await self._repair.run()

    async def announce(self, hint: Hint) -> None:
        with unavailable_on_error():
            await self._client.publish(self._channel, encode_hint(hint))

    async def hints(self) -> AsyncIterator[Hint]:
        """One subscription for as long as somebody listens; while it is cut off, the horizon has to do."""
        while True:
            try:
                async with self._client.pubsub() as subscription:
                    await subscription.subscribe(self._channel)
                    async for word in subscription.listen():
                        if word["type"] == "message":
                            yield _decode_hint(word["data"])
            except (*UNREACHABLE, msgspec.MsgspecError) as error:
                log.info("Hints stopped; looking every second", extra={"action": "hint", "error": type(error).__name__})
            await self._clock.sleep(RECONNECT_MS)

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

    def _count(self, lane: int, at: int, messages: int, added: int) -> None:
        """Messages only ever grow in number: a server that had fewer before this write lost some in a failover."""
        seen_at, seen = self._seen.get(lane, (0, 0))
        if at <= seen_at:
            return
        self._seen[lane] = at, messages
        lost = seen - (messages - added)
        if lost > 0:
            self.lost += lost
            log.error(
                "The store lost messages that were acknowledged, as after a failover without WAIT",
                extra={"action": "write", "shard": lane, "lost": lost},
            )

    async def _letters(self, shard: Shard, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        with unavailable_on_error():
            entries = await page(self._client, shard.letters, limit, before, desc=True)
        rows = await self._rows.turns(shard, [turn_id for _, turn_id in entries])
        return [row for row in rows if row and row.is_letter]

    async def _forget(self, shard: Shard, before: int, limit: int) -> int:
        num = min(limit, PAGE)
        ids = await self._client.zrange(shard.closed, "-inf", f"({before}", byscore=True, offset=0, num=num)
        keys: list[str] = [shard.closed]
        args: list[Any] = [before]
        turn_ids = [id.decode() for id in ids]
        for turn_id, row in zip(turn_ids, await self._rows.turns(shard, turn_ids), strict=True):
            if row is None or row.closed is None:
                keys += [shard.turn(turn_id), shard.conversation(""), shard.turns("")]
                args.append(encode((turn_id, "", [])))
                continue
            fields: list[str] = []
            if row.closed.status != "interrupted":
                messages = await self.messages(row.key, row.closed.head, row.closed.tail)
                fields = [field for m in messages.values() for field in (f"m{m.seq}", f"i{m.id}")]
            keys += [shard.turn(row.id), shard.conversation(row.key), shard.turns(row.key)]
            args.append(encode((row.id, member(row.closed), fields)))
        return int(await FORGET(self._client, keys, args)) if len(args) > 1 else 0


def _letter_order(row: TurnRow) -> tuple[int, str]:
    assert row.closed is not None
    return row.closed.at, row.id
