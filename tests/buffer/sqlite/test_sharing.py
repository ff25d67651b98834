"""Several processes on one file."""

import asyncio

from turntake.buffer.sqlite.backend import SqliteStore
from turntake.rules.conversation import Answered
from turntake.rules.key import ConversationKey
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import (
    LEASE_MS,
    ids_of,
    open_ids,
    say,
    take,
)


async def test_two_stores_on_one_file_keep_the_promises(path: str, clock: VirtualClock) -> None:
    """Two processes take turns message by message: numbers have no holes, ids are known, claims are fenced."""
    async with SqliteStore(path, clock) as one, SqliteStore(path, clock) as other:
        for number in range(10):
            await say(one if number % 2 else other, f"m{number}")
        assert (await say(one, "m0")).status == "duplicate"
        await clock.advance(30_000)
        claim = await take(other)
        assert [message.seq for message in claim.messages] == list(range(1, 11))
        assert await one.claim(5, LEASE_MS) == []
        await say(one, "late")
        assert await one.settle(claim, Answered())
        assert await other.settle(claim, Answered())
        assert await open_ids(other) == ["late"]


async def test_two_stores_on_one_file_at_once_lose_nothing_and_claim_once(path: str, clock: VirtualClock) -> None:
    """Two processes write and claim at the same time."""
    keys = [ConversationKey.of(f"c{number}") for number in range(20)]
    async with SqliteStore(path, clock) as one, SqliteStore(path, clock) as other:
        for store in (one, other):
            await store.next_due()
        await asyncio.gather(*(say(store, f"{n}", key=key) for key in keys for n, store in enumerate((one, other))))
        await clock.advance(30_000)
        claims = await asyncio.gather(*(store.claim(3, LEASE_MS) for store in (one, other) for _ in range(10)))
        taken = [claim for some in claims for claim in some]
        assert sorted(str(claim.key) for claim in taken) == sorted(map(str, keys))
        assert all(sorted(ids_of(claim)) == ["0", "1"] for claim in taken)
