"""Claiming on Redis: who is due is read, reserved for a moment, decided on, and written by compare and swap."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from turntake.buffer.engine.backend import Due, Offer, Refusal
from turntake.buffer.engine.draft import Draft
from turntake.buffer.redis.keys import Shard
from turntake.buffer.redis.repair import Repair
from turntake.buffer.redis.rows import Rows, messages_of, row_of
from turntake.buffer.redis.scripts import RESERVE_DUE, grouped
from turntake.buffer.redis.shards import lists_or_empty
from turntake.buffer.redis.url import Client, unavailable_on_error
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")

RESERVED_MS = 500
UNREADABLE_MS = 60_000
MESSAGES_OFFERED = 100
RESERVE_ROUNDS = 10
CLAIMED_AT_ONCE = 100

Swap = Callable[[int, Sequence[Draft]], Awaitable[list[Refusal | None]]]


class RedisOffer(Offer):
    """Due conversations of several shards, reserved for a moment."""

    def __init__(self, due: Sequence[Due], claiming: "Claiming") -> None:
        self.due = due
        self._claiming = claiming

    async def take(self, drafts: Sequence[Draft]) -> list[bool]:
        return await self._claiming.take(drafts)

    async def repair(self, wrong: Sequence[Due]) -> None:
        await self._claiming.repair([due.key for due in wrong])


class Claiming:
    """`swap` writes a shard's drafts."""

    def __init__(self, line: Client, rows: Rows, repair: Repair, swap: Swap) -> None:
        self._line = line
        self._rows = rows
        self._repair = repair
        self._swap = swap

    @asynccontextmanager
    async def offer(self, limit: int, now: int) -> AsyncIterator[RedisOffer]:
        """Asks again while others were quicker: what they reserved is out of the way by then."""
        due: list[Due] = []
        for _ in range(RESERVE_ROUNDS):
            earliest = await self._due_before(now, min(limit, CLAIMED_AT_ONCE))
            due = await self._reserve_all(earliest, now)
            if due or not earliest:
                break
        yield RedisOffer(due, self)

    async def take(self, drafts: Sequence[Draft]) -> list[bool]:
        by_shard: dict[int, list[int]] = defaultdict(list)
        for index, draft in enumerate(drafts):
            by_shard[self._rows.shards.number_of(draft.key)].append(index)
        swaps = [self._swap(shard, [drafts[i] for i in indexes]) for shard, indexes in by_shard.items()]
        parts = lists_or_empty(await asyncio.gather(*swaps, return_exceptions=True))
        taken = [False] * len(drafts)
        for indexes, refusals in zip(by_shard.values(), parts, strict=True):
            # A shard that failed has no refusals: nothing of it was taken.
            for index, refusal in zip(indexes, refusals, strict=False):
                taken[index] = refusal is None
        return taken

    async def repair(self, keys: Sequence[ConversationKey]) -> None:
        by_shard: dict[int, list[str]] = defaultdict(list)
        for key in keys:
            by_shard[self._rows.shards.number_of(key)].append(str(key))
        with unavailable_on_error():
            for number, names in by_shard.items():
                await self._repair.conversations(self._rows.shards[number], names)

    async def _due_before(self, now: int, limit: int) -> list[tuple[int, str]]:
        """The shards and keys of those that are due, earliest first."""
        with unavailable_on_error():
            parts = await self._rows.shards.ask_reachable(
                lambda shard: self._line.execute_command(
                    "ZRANGE", shard.due, "-inf", now, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES"
                ),
            )
        due = sorted((float(s), name, shard) for shard, part in enumerate(parts) for name, s in grouped(part, 0, 2))
        return [(shard, name.decode()) for _, name, shard in due[:limit]]

    async def _reserve_all(self, earliest: list[tuple[int, str]], now: int) -> list[Due]:
        by_shard: dict[int, list[str]] = defaultdict(list)
        for shard, key in earliest:
            by_shard[shard].append(key)
        reserving = [self._reserve(self._rows.shards[shard], keys, now) for shard, keys in by_shard.items()]
        parts = lists_or_empty(await asyncio.gather(*reserving, return_exceptions=True))
        rank = {key: rank for rank, (_, key) in enumerate(earliest)}
        return sorted((due for part in parts for due in part), key=lambda due: rank[str(due.key)])

    async def _reserve(self, shard: Shard, keys: list[str], now: int) -> list[Due]:
        names = [shard.due, *(shard.conversation(key) for key in keys)]
        with unavailable_on_error():
            answer = await RESERVE_DUE(self._line, names, [now, now + RESERVED_MS, MESSAGES_OFFERED, *keys])
        offered = []
        for number, version, body, first, payloads in grouped(answer, 0, 5):
            key = keys[number - 1]
            try:
                offered.append(Due(ConversationKey.parse(key), row_of(version, body), messages_of(first, payloads)))
            except (ValueError, msgspec.MsgspecError):
                log.error("A conversation cannot be read", extra={"action": "claim", "conversation": key})
                with unavailable_on_error():
                    await self._line.execute_command("ZADD", shard.due, now + UNREADABLE_MS, key)
        return offered
