"""Many workers on one store: few wake for each deadline, and none is left to nobody."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from harness.databases import Valkey
from harness.redis_store import watched
from harness.writing import key
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.store import HORIZON_MS, Store
from turntake.rules.conversation import Answered
from turntake.rules.watch import LIVING_MS, OVERDUE_MS, STAGGER_MS, WATCHERS
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, OFF, say

CREW = 12


@pytest.fixture(params=[1, 64])
async def crew(request: pytest.FixtureRequest, url: str, clock: VirtualClock) -> AsyncIterator[list[Store]]:
    """Workers that know each other, on a store with few and with many shards."""
    async with AsyncExitStack() as stores:
        opened: list[Store] = []
        for _ in range(CREW):
            store = RedisStore.open(f"{url}&shards={request.param}", clock)
            opened.append(await stores.enter_async_context(store))
        await meet(opened)
        yield opened


async def meet(crew: list[Store]) -> None:
    """Those who came first have not heard of those who came last; and after a change they watch the old as well."""
    for _ in range(3):
        for number, store in enumerate(crew):
            await store.join(f"worker{number}")


async def woken_at(crew: list[Store]) -> list[int]:
    """When those wake who wake for anything."""
    wakes = [await store.next_look() for store in crew]
    return sorted(at for at in wakes if at is not None)


async def test_few_workers_wake_for_a_deadline(crew: list[Store], clock: VirtualClock) -> None:
    """One in time, the others a moment later; the rest sleeps on."""
    due_at = (await say(crew[0], "m1")).due_at or 0
    await clock.advance(HORIZON_MS)
    wakes = await woken_at(crew)
    # Whoever stored the message looks after it as well.
    assert wakes[:WATCHERS] == [due_at + STAGGER_MS * number for number in range(WATCHERS)]
    assert len(wakes) <= WATCHERS + 1


async def test_whoever_does_not_watch_it_claims_it_only_when_it_is_overdue(
    crew: list[Store], clock: VirtualClock
) -> None:
    """Its watchers are busy, or died: the next look of anybody finds it."""
    await say(crew[0], "m1", rules=OFF)
    before = [store for store in crew[1:] if await store.next_look() is None]
    assert len(before) >= CREW - 1 - WATCHERS
    for store in before:
        assert await store.claim(5, LEASE_MS) == []
    await clock.advance(HORIZON_MS + OVERDUE_MS)
    claims = [claim for store in crew for _ in [await store.next_look()] for claim in await store.claim(5, LEASE_MS)]
    assert len(claims) == 1


async def test_every_deadline_is_somebodys(crew: list[Store], clock: VirtualClock) -> None:
    """Fifty conversations at different times: each is claimed in time by whoever wakes for it."""
    for number in range(50):
        await say(crew[0], "m1", key=key(number))
        await clock.advance(17)
    late: list[int] = []
    end_at = clock.now() + 2 * HORIZON_MS
    while clock.now() < end_at:
        for store in crew:
            look_at = await store.next_look()
            if look_at is not None and look_at <= clock.now():
                late += [clock.now() - claim.turn.due.at for claim in await store.claim(50, LEASE_MS)]
        await clock.advance(STAGGER_MS)
    assert len(late) == 50
    assert max(late) <= WATCHERS * STAGGER_MS


async def test_the_share_of_a_worker_that_died_falls_to_the_others(crew: list[Store], clock: VirtualClock) -> None:
    """It said nothing for some seconds. One that leaves says so, and is not waited for."""
    await crew[0].leave("worker0")
    left = crew[1:]
    await meet(left)
    for _ in range(2):
        await clock.advance(LIVING_MS // 2 + 1)
        await meet(left[:2])
    await say(left[0], "m1", rules=OFF)
    assert await woken_at(left[:2]) == [clock.now(), clock.now() + STAGGER_MS]


async def test_a_look_reads_nothing_but_what_is_due_soon(server: Valkey, url: str, clock: VirtualClock) -> None:
    """If many workers read dozens of idle conversations with every look, that would keep the server busy."""
    async with RedisStore.open(url, clock) as store:
        for number in range(CREW):
            await store.join(f"worker{number}")
        for number in range(2 * CREW):
            await say(store, "m1", key=key(number), rules=OFF)
        await clock.advance(OVERDUE_MS)
        for claim in await store.claim(2 * CREW, LEASE_MS):
            await store.settle(claim, Answered())
        sent = [server.ask("INFO", "stats")["total_net_output_bytes"]]
        for looks in (1, 2):
            for _ in range(looks):
                assert await store.next_look() is None
            sent.append(server.ask("INFO", "stats")["total_net_output_bytes"])
        of_one_look = (sent[2] - sent[1]) - (sent[1] - sent[0])
        assert of_one_look < 100


async def test_a_look_costs_as_many_commands_however_many_shards_there_are(
    server: Valkey, url: str, clock: VirtualClock
) -> None:
    """Once it has seen them all, a lone worker asks only where something is due."""
    async with RedisStore.open(f"{url}&shards=64", clock) as store:
        await store.join("worker")
        await store.next_look()
        with watched(server) as seen:
            await say(store, "m1", rules=OFF)
            assert await store.next_look() == clock.now()
            assert len(await store.claim(5, LEASE_MS)) == 1
            await store.next_look()
        assert len([command for command in seen if command.name == "ZRANGE"]) <= 3
