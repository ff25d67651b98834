"""Many workers on one server share the deadlines out: who wakes for which, and who comes if that one does not."""

from collections import Counter
from typing import Any

import pytest

from harness.databases import Postgres
from harness.writing import key
from turntake.buffer.postgres.backend import PostgresStore
from turntake.buffer.postgres.lookout import EVERYBODYS_MS, STEP_MS, look_at
from turntake.buffer.postgres.pool import Pool
from turntake.buffer.store import HORIZON_MS
from turntake.clock import SystemClock
from turntake.rules.watch import ALONE, JOIN_MS, LIVING_MS, SLICE_MS, WATCHERS, Place
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, OFF, PLAIN, say

CREW = [Place(number, 40) for number in range(40)]


def test_a_deadline_ahead_wakes_one_worker_by_itself() -> None:
    """And each of forty about as often as any other."""
    deadlines = [SLICE_MS * number for number in range(1_000, 5_000)]
    wakes = [place for due_at in deadlines for place in CREW if look_at(place, [due_at], 0) == due_at]
    assert len(wakes) == len(deadlines)
    assert max(Counter(wakes).values()) < 2 * len(deadlines) / 40


def test_one_that_is_past_is_left_to_its_watchers_a_step_apart_and_then_is_everybodys() -> None:
    due_at = 1_000_000
    looks = [look_at(place, [due_at], due_at) for place in CREW]
    assert sorted(at for at in looks if at is not None) == [due_at + step * STEP_MS for step in range(WATCHERS)]
    assert {look_at(place, [due_at], due_at + EVERYBODYS_MS) for place in CREW} == {due_at}


def test_of_several_the_first_that_is_ours_counts() -> None:
    deadlines = [1_000_000 + SLICE_MS * number for number in range(200)]
    for place in CREW:
        own = [due_at for due_at in deadlines if look_at(place, [due_at], 0) == due_at]
        assert look_at(place, deadlines, 0) == own[0]
    assert look_at(CREW[0], [], 0) is None


async def test_workers_know_each_other_until_they_leave_or_fall_silent(server: Postgres, clock: VirtualClock) -> None:
    async with (
        PostgresStore.open(server.database("crew"), clock) as one,
        PostgresStore.open(server.url.rpartition("/")[0] + "/crew", clock) as other,
    ):
        await one.join("a")
        await other.join("b")
        await one.join("a")
        assert (one._place, other._place) == (Place(0, 2), Place(1, 2))
        await one.leave("a")
        await one.next_look()
        await other.join("b")
        assert other._place == Place(0, 1), "a look after the end says nothing"
        await one.join("a")
        await clock.advance(LIVING_MS + 1)
        await other.join("b")
        assert other._place == Place(0, 1)
        await other.next_look()
        await other.join("c")
        assert other._place == Place(1, 2), "what a look said for one says nothing for another"
        await one.join("a")
        assert one._place == Place(0, 3)


async def test_a_look_says_that_its_worker_lives_and_finds_out_who_else_does(
    server: Postgres, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So whoever looks once a second needs no other transaction for it; and a worker that died is missed soon."""
    asked: list[bytes] = []

    async def fetch(pool: Pool, query: bytes, parameters: Any = ()) -> list[Any]:
        asked.append(query)
        return await plain_fetch(pool, query, parameters)

    plain_fetch = Pool.fetch
    monkeypatch.setattr(Pool, "fetch", fetch)
    url = server.database("looks")
    async with PostgresStore.open(url, clock) as living, PostgresStore.open(url, clock) as dead:
        await dead.join("a")
        await living.join("b")
        await clock.advance(JOIN_MS)
        await living.next_look()
        await living.join("b")
        assert living._place == Place(1, 2)
        asked.clear()
        rounds = LIVING_MS // JOIN_MS + 2
        for _ in range(rounds):
            await clock.advance(JOIN_MS)
            for _ in range(2):
                await living.next_look()
            await living.join("b")
        assert living._place == ALONE
        assert len(asked) == 2 * rounds, "also once it is alone"
        await dead.join("a")
        assert dead._place == Place(0, 2)


async def test_one_of_two_wakes_for_a_deadline_and_both_for_what_is_overdue(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    async with PostgresStore.open(server.url, clock) as other:
        for crew, name in ((store, "a"), (other, "b"), (store, "a")):
            await crew.join(name)
        due_at = (await say(store, "m1", rules=PLAIN)).due_at
        assert due_at is not None
        await clock.advance(due_at - clock.now() - 500)
        assert sorted([await store.next_look() or 0, await other.next_look() or 0]) == [0, due_at]
        await clock.advance(500 + EVERYBODYS_MS)
        assert [await store.next_look(), await other.next_look()] == [due_at, due_at]
        await say(store, "m2", rules=OFF)
        for crew, name in ((store, "a"), (other, "b")):
            await crew.leave(name)


async def test_a_shared_look_hides_nothing_that_is_overdue(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    """It reads several deadlines: a claim starts at the first of them."""
    async with PostgresStore.open(server.url, clock) as other:
        for number in range(2):
            await say(store, "m1", key=key(number), rules=OFF)
            await clock.advance(HORIZON_MS)
        await clock.advance(2 * HORIZON_MS)
        for crew, name in ((store, "a"), (other, "b"), (store, "a")):
            await crew.join(name)
        for _ in range(2):
            await store.next_look()
        assert [claim.key for claim in await store.claim(5, LEASE_MS)] == [key(0), key(1)]
        for crew, name in ((store, "a"), (other, "b")):
            await crew.leave(name)


async def test_a_shared_look_brings_the_servers_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it also says that its worker lives or not."""
    clock, told = SystemClock(), list[int]()
    async with PostgresStore.open(url, clock) as store, PostgresStore.open(url, SystemClock()) as other:
        for crew, name in ((store, "a"), (other, "b"), (store, "a")):
            await crew.join(name)
        monkeypatch.setattr(clock, "follow", lambda at, seen_at=0: told.append(at))
        assert store._place.workers == 2
        for looks in (1, 2):
            await store.next_look()
            assert len(told) == looks
