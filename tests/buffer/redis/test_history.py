"""Lists, letters and forgetting, while others write."""

from typing import Any

import pytest

from harness.databases import Valkey
from harness.redis_store import backend_of, shard_of
from harness.writing import key
from turntake.buffer.engine import history as reading
from turntake.buffer.redis import archive
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.scripts import FORGET
from turntake.buffer.store import Query
from turntake.rules.conversation import Answered, Dead
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, OFF, ids_of, open_ids, say, take
from turntake.testing.store_machine import conversations_by_pages


async def test_what_a_retried_letter_held_outlives_its_turn(store: RedisStore, clock: VirtualClock) -> None:
    """Its messages moved on: forgetting the old turn forgets neither them nor their ids."""
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    await store.settle(claim, Dead("no"))
    assert await store.letters.retry(claim.turn.id)
    await clock.advance(1)
    assert await store.history.forget(clock.now()) == 1
    assert await open_ids(store) == ["m1"]
    assert (await say(store, "m1", rules=OFF)).status == "duplicate"
    assert ids_of(await take(store)) == ["m1"]


async def test_a_turn_that_closed_again_meanwhile_is_not_forgotten(
    server: Valkey, store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read as old, and is young by the time it would be dropped."""
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    await store.settle(claim, Answered())
    await clock.advance(1_000)

    async def later(*args: Any) -> Any:
        server.ask("ZADD", shard_of(store).closed, clock.now(), claim.turn.id)
        return await FORGET(*args)

    monkeypatch.setattr(archive, "FORGET", later)
    assert await store.history.forget(clock.now()) == 0
    assert await store.history.turn(claim.turn.id) is not None
    assert (await say(store, "m1", rules=OFF)).status == "duplicate"


async def test_a_listing_skips_nobody_who_moves_meanwhile(
    store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages go on from where the index was read, not from where the last row went since."""
    monkeypatch.setattr(reading, "PAGE", 2)
    for number in range(6):
        await say(store, "m1", key=key(number), rules=OFF)
    load, loads = backend_of(store).load, []

    async def load_late(keys: Any) -> Any:
        loads.append(keys)
        if len(loads) == 1:
            for claim in await store.claim(2, LEASE_MS):
                await store.settle(claim, Answered())
        return await load(keys)

    monkeypatch.setattr(backend_of(store), "load", load_late)
    listed = {key for key, _ in await conversations_by_pages(store, Query(limit=50))}
    assert listed == {key(number) for number in range(6)}


async def test_forgetting_gets_past_entries_without_a_row(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """They go too, or they would stand before all others for ever."""
    server.ask("ZADD", shard_of(store).closed, 1, "turn_0000ghost")
    await say(store, "m1", rules=OFF)
    await store.settle(await take(store), Answered())
    await clock.advance(1)
    assert await store.history.forget(clock.now()) == 2
    assert server.ask("ZCARD", shard_of(store).closed) == 0


async def test_listings_are_in_order_over_many_shards_and_read_little_more_than_they_show(
    server: Valkey, url: str, clock: VirtualClock
) -> None:
    """Each shard is asked for a part, and those that have more of the first ones for the rest."""
    crowded = [number for number in range(400) if key(number).shard_hash % 64 == 5]
    people = [*crowded, *(number for number in range(300) if number not in crowded)]
    async with RedisStore.open(f"{url}&shards=64", clock) as store:
        for number in people[:60]:
            await say(store, "m1", key=key(number), rules=OFF)
            await clock.advance(1)
        after = None
        listed: list[str] = []
        while rows := await backend_of(store).archive.conversations(after, 25):
            after = rows[-1][0]
            listed += [at.key for at, _ in rows]
        assert listed == [str(key(number)) for number in people[:60]]
        for claim in await store.claim(60, LEASE_MS):
            await store.settle(claim, Dead("no"))
            await clock.advance(1)
        letters: list[str] = []
        page = await store.letters.list(25)
        letters += [str(letter.key) for letter in page.items]
        while page.cursor:
            page = await store.letters.list(25, page.cursor)
            letters += [str(letter.key) for letter in page.items]
        assert letters == [str(key(number)) for number in reversed(people[:60])]
