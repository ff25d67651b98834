"""A claim on Redis: due conversations are found in the index, reserved for a moment, and written by compare and swap.

How this works, in three steps:

1. Find: the lookout reads the earliest due conversations off the indexes. It only reads, so several workers may see the
   same ones.
2. Reserve: reserve_due.lua looks at each of them again. One that is still due gets a later deadline in the index, for a
   moment, and comes back with its row and messages; one that another worker reserved first is left out. So each due
   conversation is offered to one worker at a time, and the others look for the next ones. An offer has only so many
   bytes: what is left out stays due.
3. Take: the engine decides on the rows, and the drafts are swapped like all others. The swap sets the deadline in the
   index anew. The reservation itself protects nothing: if it ends too early, the row's version decides who is first.

A worker that dies between 2 and 3 leaves the row as it was, and a deadline in the index that comes a moment later.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from turntake.buffer.engine.backend import UNREADABLE_MS, Due, Offer
from turntake.buffer.engine.draft import Draft, row_of
from turntake.buffer.engine.offer_size import OFFER_BYTES, OfferSize
from turntake.buffer.redis.keys import Shard
from turntake.buffer.redis.lookout import RedisLookout
from turntake.buffer.redis.nodes import WRITE_PATIENCE_MS, Nodes
from turntake.buffer.redis.repair import Repair
from turntake.buffer.redis.rows import Rows, messages_of
from turntake.buffer.redis.scripts import RESERVE_DUE, grouped
from turntake.buffer.redis.shards import lists_or_empty
from turntake.buffer.redis.swap import Swapper
from turntake.buffer.redis.url import TIMEOUT_MS, Client, unavailable_on_error
from turntake.rules.conversation import Retry
from turntake.rules.key import ConversationKey
from turntake.rules.records import Claim

log = logging.getLogger("turntake")

RESERVED_MS = 500  # many times what a claim of 100 takes (20 ms); a worker that dies delays its turns by no more
MESSAGES_OFFERED = 100  # more than nearly all turns have; those of a longer one are read afterwards
RESERVE_ROUNDS = 10  # a round is lost only to workers that got something; ten in a row, there are workers enough
OFFERED_AT_ONCE = 100  # conversations in one call: 2 ms of the script, in which Redis does nothing else


class Claiming:
    """What every offer of a process needs."""

    def __init__(
        self, commands: Client, rows: Rows, repair: Repair, swapper: Swapper, lookout: RedisLookout, nodes: Nodes
    ) -> None:
        self.commands = commands
        self.rows = rows
        self.repair = repair
        self.swapper = swapper
        self.lookout = lookout
        self.nodes = nodes
        self.size = OfferSize()


class RedisOffer(Offer):
    """Due conversations of any number of shards, reserved for a moment."""

    def __init__(self, claiming: Claiming) -> None:
        self.due: list[Due] = []
        self._claiming = claiming
        self._shards = claiming.rows.shards

    async def reserve(self, limit: int, now: int) -> None:
        """Fills `due`. If others were quicker everywhere, asks again: what they reserved is out of the way by then."""
        for _ in range(RESERVE_ROUNDS):
            earliest = await self._earliest(now, min(limit, OFFERED_AT_ONCE))
            self.due = await self._reserve_all(earliest, now)
            if self.due or not earliest:
                return

    async def reserve_among(self, keys: Sequence[ConversationKey], now: int) -> None:
        """Fills `due` with those of these that are due and that nobody else reserved."""
        wanted = [(self._shards.number_of(key), str(key)) for key in keys[:OFFERED_AT_ONCE]]
        self.due = await self._reserve_all(wanted, now)

    async def take(self, drafts: Sequence[Draft]) -> list[bool]:
        by_shard: dict[int, list[Draft]] = defaultdict(list)
        for draft in drafts:
            by_shard[self._shards.number_of(draft.key)].append(draft)
        # No replica need have a claim: whoever claims is told nothing that a failover could make untrue for a person.
        nodes = self._claiming.nodes.with_their_shards(by_shard)
        asked = {name: partial(self._take, numbers, by_shard) for name, numbers in nodes.items()}
        answers = await self._claiming.nodes.ask(asked, WRITE_PATIENCE_MS, self._hand_back)
        taken = {id(draft) for part in answers.values() for draft in part}
        return [id(draft) in taken for draft in drafts]

    async def repair(self, wrong: Sequence[Due]) -> None:
        by_shard: dict[int, list[str]] = defaultdict(list)
        for due in wrong:
            by_shard[self._shards.number_of(due.key)].append(str(due.key))
        with unavailable_on_error:
            for number, keys in by_shard.items():
                await self._claiming.repair.conversations(self._shards[number], keys)

    async def _earliest(self, now: int, limit: int) -> list[tuple[int, str]]:
        """Shard numbers and keys of what the index says is due, earliest first; a tie goes by the key."""
        return await self._claiming.lookout.due(limit, now)

    async def _reserve_all(self, earliest: list[tuple[int, str]], now: int) -> list[Due]:
        by_shard: dict[int, list[str]] = defaultdict(list)
        for number, key in earliest:
            by_shard[number].append(key)
        most_bytes = self._claiming.size.bytes // max(1, len(by_shard))

        async def reserve(numbers: list[int]) -> list[Due]:
            """Those of one node."""
            asked = [self._reserve(self._shards[number], by_shard[number], now, most_bytes) for number in numbers]
            return [due for part in await lists_or_empty(asked) for due in part]

        nodes = self._claiming.nodes.with_their_shards(by_shard)
        asked = {name: partial(reserve, numbers) for name, numbers in nodes.items()}
        answers = await self._claiming.nodes.ask(asked, WRITE_PATIENCE_MS)
        rank = {key: rank for rank, (_, key) in enumerate(earliest)}
        return sorted((due for part in answers.values() for due in part), key=lambda due: rank[str(due.key)])

    async def _reserve(self, shard: Shard, keys: list[str], now: int, most_bytes: int = OFFER_BYTES) -> list[Due]:
        """Those of one shard that are still due. A row that cannot be read is put off, and named in the log."""
        names = [shard.due, *(shard.conversation(key) for key in keys)]
        args: list[str | bytes | int] = [now, now + RESERVED_MS, MESSAGES_OFFERED, most_bytes, *keys]
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            with unavailable_on_error:
                answer = await RESERVE_DUE(self._claiming.commands, names, args)
        finally:
            self._claiming.size.took((loop.time() - began_at) * 1000, TIMEOUT_MS)
        reserved = []
        for number, version, body, first, payloads in grouped(answer, 0, 5):
            key = keys[number - 1]
            try:
                reserved.append(Due(ConversationKey.parse(key), row_of(version, body), messages_of(first, payloads)))
            except (ValueError, msgspec.MsgspecError):
                log.error("A conversation cannot be read", extra={"action": "claim", "conversation": key})
                with unavailable_on_error:
                    put_off = ("ZADD", shard.due, now + UNREADABLE_MS, key)
                    await self._claiming.commands.execute_command(*put_off)
        return reserved

    async def _take(self, numbers: list[int], by_shard: Mapping[int, Sequence[Draft]]) -> list[Draft]:
        """The drafts of one node that are ours now; of a shard that failed, nothing is."""
        parts = await lists_or_empty(
            [self._claiming.swapper.swap(self._shards[number], by_shard[number]) for number in numbers]
        )
        taken = []
        for number, refusals in zip(numbers, parts, strict=True):
            answers = zip(by_shard[number], refusals, strict=False)
            taken += [draft for draft, refusal in answers if refusal is None]
        return taken

    async def _hand_back(self, taken: Sequence[Draft]) -> None:
        """Claims that a node confirmed when nobody waited for them any more: without this they would be held for
        nobody until their leases end."""
        for draft in taken:
            turn = draft.conversation.turn
            assert turn is not None
            back = Draft(draft.key, draft.written, draft.now)
            back.settle(Claim(draft.key, draft.conversation.epoch, turn, ()), Retry(0, is_failure=False))
            back.encode()
            await self._claiming.swapper.swap(self._shards[self._shards.number_of(draft.key)], [back])
