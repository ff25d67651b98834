"""Looks at the indexes of deadlines: what is due, and when this process must look again.

How this works: a shard's index is a sorted set, and a look reads its earliest entries. As long as no worker of this
process said that it works beside others, every look is at all shards and sees everything. Once it has a place among
them, it looks at the shards that it watches, at each once a horizon; in between only where something is due by what it
knows, from the last look, from its own writes and from hints. So 256 shards cost a worker few commands, and the workers
of a cluster together no more than a few would.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from redis.asyncio import RedisCluster

from turntake.buffer.cursor import Cursor
from turntake.buffer.engine.lookout import Lookout
from turntake.buffer.redis.index import page
from turntake.buffer.redis.keys import IDLE
from turntake.buffer.redis.nodes import PATIENCE_MS, Nodes
from turntake.buffer.redis.scripts import grouped
from turntake.buffer.redis.shards import Shards
from turntake.buffer.redis.url import Client, unavailable_on_error
from turntake.buffer.store import HORIZON_MS
from turntake.clock import NEVER
from turntake.rules.watch import ALONE, LIVING_MS, STAGGER_MS, Place, may_claim_at, parts, wake_at, watches

DEEPEST = 100  # entries of one look: among as many, some are this worker's, unless it has hundreds beside it

Entry = tuple[float, bytes]
"""A deadline and the key of its conversation."""


class RedisLookout(Lookout):
    """One for each process. What it knows of a shard is when to look there next. Who lives is a sorted set."""

    def __init__(self, client: Client, commands: Client, prefix: str, shards: Shards, nodes: Nodes) -> None:
        self._client = client
        self._commands = commands
        self._workers = f"{prefix}:workers"
        self._has_joined = False
        self._shards = shards
        self._nodes = nodes
        self._place: Place | None = None
        self._watched: frozenset[int] = frozenset(range(len(shards)))
        self._look_at = [0] * len(shards)
        self._looked_at = [-HORIZON_MS] * len(shards)

    async def join(self, worker: str, now: int) -> list[str]:
        with unavailable_on_error:
            async with self._client.pipeline(transaction=False) as pipeline:
                if not self._has_joined:
                    pipeline.zremrangebyscore(self._workers, "-inf", now - LIVING_MS)
                pipeline.zadd(self._workers, {worker: now})
                pipeline.zrange(self._workers, now - LIVING_MS, "+inf", byscore=True)
                *_, members = await pipeline.execute()
            self._has_joined = True
        return [member.decode() for member in members]

    async def leave(self, worker: str) -> None:
        with unavailable_on_error:
            await self._client.zrem(self._workers, worker)

    def take_place(self, place: Place) -> None:
        """From here on this process shares the deadlines with others.

        Others learn of a change a moment later or earlier; meanwhile it also looks at what it watched before.
        """
        count = len(self._shards)
        watched = frozenset(number for number in range(count) if watches(place, number, count))
        if place != self._place:
            self._watched = watched if self._place is None else watched | self._watched
            self._place = place
            self._look_at = [0] * count
        else:
            self._watched = watched

    def expect(self, shard: int, due_at: int | None) -> None:
        """A deadline was set in a shard, here or elsewhere."""
        if due_at is not None:
            self._look_at[shard] = min(self._look_at[shard], self._claimable_at(shard, due_at))

    async def next_due(self) -> int | None:
        """The earliest deadline of all."""
        looks = await self._read(range(len(self._shards)), "0", "0")
        earliest = min((score for entries in looks.values() for score, _ in entries), default=IDLE)
        return None if earliest == IDLE else int(earliest)

    async def next_look(self, now: int) -> int | None:
        """When this process must look again, at the latest in a horizon; None if nothing waits for it."""
        place, count = self._place or ALONE, len(self._shards)
        numbers = self._worth_a_look(now, now - HORIZON_MS)
        depth = 1 if parts(place, count) == 1 else min(2 * place.workers, DEEPEST)
        looks = await self._read(numbers, *_first(depth, now + HORIZON_MS))
        self._put_off(numbers, looks, now)
        for number, entries in looks.items():
            deadlines = [int(score) for score, _ in entries if score != IDLE]
            self._look_at[number] = self._earliest(number, deadlines, depth, now)
            self._looked_at[number] = now
        earliest = min(self._look_at)
        return None if earliest == NEVER else earliest

    async def due(self, limit: int, now: int) -> list[tuple[int, str]]:
        """Shard numbers and keys of what is due and ours to claim, earliest first; a tie goes by the key."""
        is_shared = self._place is not None
        numbers = self._worth_a_look(now) if is_shared else list(range(len(self._shards)))
        most = limit + DEEPEST if is_shared and self._place != ALONE else limit
        looks = await self._read(numbers, "-inf", str(now), "BYSCORE", "LIMIT", "0", str(most))
        if is_shared:
            self._put_off(numbers, looks, now)
        found = sorted((score, key, number) for number, entries in looks.items() for score, key in entries)
        ours = (one for one in found if not is_shared or self._claimable_at(one[2], int(one[0])) <= now)
        return [(number, key.decode()) for _, (_, key, number) in zip(range(limit), ours, strict=False)]

    async def due_after(self, after: Cursor | None, limit: int, now: int) -> list[tuple[int, str]]:
        """Deadlines and keys of what is due, whoever is to claim it, by deadline and then key, after a point."""
        numbers = self._worth_a_look(now) if self._place is not None else list(range(len(self._shards)))
        if after is None:
            looks = await self._read(numbers, "-inf", str(now), "BYSCORE", "LIMIT", "0", str(limit))
            found = [(score, key.decode()) for entries in looks.values() for score, key in entries]
        else:
            start = float(after.due_at or 0), after.key
            shards = [self._shards[number] for number in numbers]
            with unavailable_on_error:
                parts = await self._shards.ask_each(shards, lambda shard: page(self._client, shard.due, limit, start))
            found = [entry for part in parts for entry in part if entry[0] <= now]
        return [(int(score), key) for score, key in sorted(found)[:limit]]

    def _worth_a_look(self, now: int, stale_at: int = -HORIZON_MS) -> list[int]:
        """The only shard there is; or else those where something is due, and those that were last looked at by then."""
        if len(self._shards) == 1:
            return [0]
        return [
            number
            for number, look_at in enumerate(self._look_at)
            if look_at <= now or (number in self._watched and self._looked_at[number] <= stale_at)
        ]

    def _put_off(self, numbers: Iterable[int], looks: dict[int, list[Entry]], now: int) -> None:
        """Where nobody answered, there is no use in looking at once again."""
        for number in numbers:
            if number not in looks:
                self._look_at[number] = now + PATIENCE_MS

    def _earliest(self, number: int, deadlines: Sequence[int], depth: int, now: int) -> int:
        """When to wake for a shard with these deadlines and, if they are as many as were asked for, with more."""
        place, count = self._place or ALONE, len(self._shards)
        wakes = [now for due_at in deadlines if self._claimable_at(number, due_at) <= now]
        for due_at in deadlines:
            woken_at = wake_at(place, number, count, due_at)
            if woken_at is not None:
                wakes.append(woken_at)
        if not wakes and len(deadlines) == depth > 1:
            return max(deadlines[-1], now + STAGGER_MS)
        return min(wakes, default=NEVER)

    def _claimable_at(self, number: int, due_at: int) -> int:
        return may_claim_at(self._place or ALONE, number, len(self._shards), due_at)

    async def _read(self, numbers: Iterable[int], *span: str) -> dict[int, list[Entry]]:
        """A span of each shard's index; a shard whose node does not answer is left out."""
        nodes = self._nodes.with_their_shards(numbers)
        with unavailable_on_error:
            answers = await self._nodes.ask({name: partial(self._ask, own, span) for name, own in nodes.items()})
        return {
            number: [(float(score), key) for key, score in grouped(part, 0, 2)]
            for name, parts in answers.items()
            for number, part in zip(nodes[name], parts, strict=True)
        }

    async def _ask(self, numbers: list[int], span: tuple[str, ...]) -> list[list[bytes]]:
        """All shards of one node in one round trip."""
        commands = [("ZRANGE", self._shards[number].due, *span, "WITHSCORES") for number in numbers]
        if not isinstance(self._commands, RedisCluster):
            if len(commands) == 1:
                return [await self._commands.execute_command(*commands[0])]
            return list(await asyncio.gather(*(self._commands.execute_command(*command) for command in commands)))
        return await self._nodes.pipelined(numbers[0], commands)


def _first(depth: int, until: int) -> tuple[str, ...]:
    """The first entries of an index. Of several only those of the next horizon, by when it is looked at again: idle
    conversations lie behind them, and forty workers that each read eighty of those would keep the server busy."""
    return ("0", "0") if depth == 1 else ("-inf", str(until), "BYSCORE", "LIMIT", "0", str(depth))
