"""Claiming on Redis: who is due is read, reserved for a moment, decided on, and written by compare and swap."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from turntake.buffer.engine.backend import Due, Refusal
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
CLAIM_ROUNDS = 10
CLAIMED_AT_ONCE = 100

Decide = Callable[[Due], Draft | None]
Claimed = list[tuple[Due, Draft]]
Swap = Callable[[int, Sequence[Draft]], Awaitable[list[Refusal | None]]]


class Claiming:
    """`swap` writes a lane's drafts."""

    def __init__(self, line: Client, rows: Rows, repair: Repair, swap: Swap) -> None:
        self._line = line
        self._rows = rows
        self._repair = repair
        self._swap = swap

    async def claim(self, limit: int, now: int, decide: Decide) -> Claimed:
        """Asks again while others were quicker: what they took is out of the way by then."""
        claims: Claimed = []
        for _ in range(CLAIM_ROUNDS):
            earliest = await self._due_before(now, min(limit, CLAIMED_AT_ONCE))
            claims = await self._claim_some(earliest, now, decide)
            if claims or not earliest:
                break
        return claims

    async def _due_before(self, now: int, limit: int) -> list[tuple[int, str]]:
        """The lanes and keys of those that are due, earliest first."""
        with unavailable_on_error():
            parts = await self._rows.shards.ask_reachable(
                lambda shard: self._line.execute_command(
                    "ZRANGE", shard.due, "-inf", now, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES"
                ),
            )
        due = sorted((float(s), name, lane) for lane, part in enumerate(parts) for name, s in grouped(part, 0, 2))
        return [(lane, name.decode()) for _, name, lane in due[:limit]]

    async def _claim_some(self, earliest: list[tuple[int, str]], now: int, decide: Decide) -> Claimed:
        by_lane: dict[int, list[str]] = defaultdict(list)
        for lane, key in earliest:
            by_lane[lane].append(key)
        claiming = [self._claim(lane, keys, now, decide) for lane, keys in by_lane.items()]
        parts = lists_or_empty(await asyncio.gather(*claiming, return_exceptions=True))
        place = {key: place for place, (_, key) in enumerate(earliest)}
        return sorted((pair for part in parts for pair in part), key=lambda pair: place[str(pair[0].key)])

    async def _claim(self, lane: int, keys: list[str], now: int, decide: Decide) -> Claimed:
        shard = self._rows.shards[lane]
        offers = [(due, decide(due)) for due in await self._take(shard, keys, now)]
        claims = [(due, draft) for due, draft in offers if draft]
        if len(claims) < len(offers):
            with unavailable_on_error():
                await self._repair.conversations(shard, [str(due.key) for due, draft in offers if draft is None])
        refusals = await self._swap(lane, [draft for _, draft in claims]) if claims else []
        return [claim for claim, refusal in zip(claims, refusals, strict=True) if refusal is None]

    async def _take(self, shard: Shard, keys: list[str], now: int) -> list[Due]:
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
