"""A claim on Redis: due conversations are found in the index, reserved for a moment, and written by compare and swap.

How this works, in three steps:

1. Find: ZRANGE gives the earliest due conversations of each shard. It only reads, so several workers see the same ones.
2. Reserve: reserve_due.lua looks at each of them again. One that is still due gets a later deadline in the index, for a
   moment, and comes back with its row and messages; one that another worker reserved first is left out. So each due
   conversation is offered to one worker at a time, and the others look for the next ones.
3. Take: the engine decides on the rows, and the drafts are swapped like all others. The swap sets the deadline in the
   index anew. The reservation itself protects nothing: if it ends too early, the row's version decides who is first.

A worker that dies between 2 and 3 leaves the row as it was, and a deadline in the index that comes a moment later.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from turntake.buffer.engine.backend import UNREADABLE_MS, Due, Offer
from turntake.buffer.engine.draft import Draft
from turntake.buffer.redis.keys import Shard
from turntake.buffer.redis.repair import Repair
from turntake.buffer.redis.rows import Rows, messages_of, row_of
from turntake.buffer.redis.scripts import RESERVE_DUE, grouped
from turntake.buffer.redis.shards import lists_or_empty
from turntake.buffer.redis.swap import Swapper
from turntake.buffer.redis.url import Client, unavailable_on_error
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")

RESERVED_MS = 500  # many times what a claim of 100 takes (20 ms); a worker that dies delays its turns by no more
MESSAGES_OFFERED = 100  # more than nearly all turns have; those of a longer one are read afterwards
RESERVE_ROUNDS = 10  # a round is lost only to workers that got something; ten in a row, there are workers enough
OFFERED_AT_ONCE = 100  # conversations in one call: 2 ms of the script, in which Redis does nothing else


class RedisOffer(Offer):
    """Due conversations of any number of shards, reserved for a moment."""

    def __init__(self, commands: Client, rows: Rows, repair: Repair, swapper: Swapper) -> None:
        self.due: list[Due] = []
        self._commands = commands
        self._rows = rows
        self._shards = rows.shards
        self._repair = repair
        self._swapper = swapper

    async def reserve(self, limit: int, now: int) -> None:
        """Fills `due`. If others were quicker everywhere, asks again: what they reserved is out of the way by then."""
        for _ in range(RESERVE_ROUNDS):
            earliest = await self._earliest(now, min(limit, OFFERED_AT_ONCE))
            self.due = await self._reserve_all(earliest, now)
            if self.due or not earliest:
                return

    async def take(self, drafts: Sequence[Draft]) -> list[bool]:
        by_shard: dict[int, list[int]] = defaultdict(list)
        for index, draft in enumerate(drafts):
            by_shard[self._shards.number_of(draft.key)].append(index)
        # No replica need have a claim: whoever claims is told nothing that a failover could make untrue for a person.
        swaps = [
            self._swapper.swap(self._shards[number], [drafts[index] for index in indexes])
            for number, indexes in by_shard.items()
        ]
        parts = await lists_or_empty(swaps)
        is_ours = [False] * len(drafts)
        for indexes, refusals in zip(by_shard.values(), parts, strict=True):
            # A shard that failed gave no answers: nothing of it is ours.
            for index, refusal in zip(indexes, refusals, strict=False):
                is_ours[index] = refusal is None
        return is_ours

    async def repair(self, wrong: Sequence[Due]) -> None:
        by_shard: dict[int, list[str]] = defaultdict(list)
        for due in wrong:
            by_shard[self._shards.number_of(due.key)].append(str(due.key))
        with unavailable_on_error():
            for number, keys in by_shard.items():
                await self._repair.conversations(self._shards[number], keys)

    async def _earliest(self, now: int, limit: int) -> list[tuple[int, str]]:
        """Shard numbers and keys of what the index says is due, earliest first; a tie goes by the key."""
        with unavailable_on_error():
            parts = await self._shards.ask_reachable(
                lambda shard: self._commands.execute_command(
                    "ZRANGE", shard.due, "-inf", now, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES"
                ),
            )
        entries = sorted(
            (float(score), key, number) for number, part in enumerate(parts) for key, score in grouped(part, 0, 2)
        )
        return [(number, key.decode()) for _, key, number in entries[:limit]]

    async def _reserve_all(self, earliest: list[tuple[int, str]], now: int) -> list[Due]:
        by_shard: dict[int, list[str]] = defaultdict(list)
        for number, key in earliest:
            by_shard[number].append(key)
        reserving = [self._reserve(self._shards[number], keys, now) for number, keys in by_shard.items()]
        parts = await lists_or_empty(reserving)
        rank = {key: rank for rank, (_, key) in enumerate(earliest)}
        return sorted((due for part in parts for due in part), key=lambda due: rank[str(due.key)])

    async def _reserve(self, shard: Shard, keys: list[str], now: int) -> list[Due]:
        """Those of one shard that are still due. A row that cannot be read is put off, and named in the log."""
        names = [shard.due, *(shard.conversation(key) for key in keys)]
        with unavailable_on_error():
            answer = await RESERVE_DUE(self._commands, names, [now, now + RESERVED_MS, MESSAGES_OFFERED, *keys])
        reserved = []
        for number, version, body, first, payloads in grouped(answer, 0, 5):
            key = keys[number - 1]
            try:
                reserved.append(Due(ConversationKey.parse(key), row_of(version, body), messages_of(first, payloads)))
            except (ValueError, msgspec.MsgspecError):
                log.error("A conversation cannot be read", extra={"action": "claim", "conversation": key})
                with unavailable_on_error():
                    await self._commands.execute_command("ZADD", shard.due, now + UNREADABLE_MS, key)
        return reserved
