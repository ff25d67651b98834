"""Two processes on one store: each remembers what it saw last, and the other has written since."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.databases import Postgres, Valkey
from turntake.buffer.postgres.backend import PostgresStore
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.buffer.store import Store
from turntake.rules.conversation import Answered
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, LEASE_MS, OFF, ids_of, open_ids, say, take
from turntake.testing.store_machine import OpenStore

Opener = Callable[[VirtualClock], OpenStore]
ROOMY = Rules(capacity=9_999, max_messages=9_999)


class Two(NamedTuple):
    """Two stores on the same data, each with a clock of its own."""

    one: Store
    other: Store
    clock: VirtualClock
    others_clock: VirtualClock

    async def advance(self, duration_ms: int) -> None:
        await self.clock.advance(duration_ms)
        await self.others_clock.advance(duration_ms)


@pytest.fixture
def sqlite_opener(tmp_path: Path) -> Opener:
    return lambda clock: lambda: SqliteStore(str(tmp_path / "turntake.db"), clock)


@pytest.fixture
def redis_opener(valkey: Valkey) -> Opener:
    valkey.ask("FLUSHALL")
    return lambda clock: lambda: RedisStore.open(valkey.url, clock)


@pytest.fixture
def postgres_opener(postgres: Postgres) -> Opener:
    url = postgres.database("two")
    return lambda clock: lambda: PostgresStore.open(url, clock)


@pytest.fixture(params=["sqlite", "redis", "postgres"])
async def two(request: pytest.FixtureRequest) -> AsyncIterator[Two]:
    opener: Opener = request.getfixturevalue(f"{request.param}_opener")
    clocks = VirtualClock(), VirtualClock()
    async with opener(clocks[0])() as one, opener(clocks[1])() as other:
        yield Two(one, other, *clocks)


async def test_settling_with_an_old_row_keeps_what_another_process_stored(two: Two) -> None:
    """A worker decides that nothing waits, and another process acknowledged a message since it looked."""
    await say(two.one, "m1", rules=OFF)
    claim = await take(two.one)
    assert (await say(two.other, "m2")).status == "buffered"
    assert await two.one.settle(claim, Answered())
    assert await open_ids(two.other) == ["m2"]
    assert await two.one.next_due() == two.clock.now() + 1_000
    await two.advance(1_000)
    assert ids_of(await take(two.one)) == ["m2"]


async def test_storing_with_an_old_row_sees_that_the_turn_is_over(two: Two) -> None:
    """Whoever receives last saw the conversation while it was being answered: the message gets a deadline."""
    await say(two.other, "m1", rules=OFF)
    assert await two.one.settle(await take(two.one), Answered())
    answer = await say(two.other, "m2")
    assert (answer.state, answer.seq, answer.waiting) == ("collecting", 2, 1)
    await two.advance(1_000)
    assert ids_of(await take(two.one)) == ["m2"]


async def test_a_worker_that_goes_idle_and_a_message_elsewhere_cannot_miss_each_other(two: Two) -> None:
    """At the same moment, again and again: a deadline stands afterwards, whichever came first."""
    for number in range(20):
        await say(two.other, f"{number} first", rules=OFF)
        claim = await take(two.one)
        settled, answer = await asyncio.gather(
            two.one.settle(claim, Answered()), say(two.other, f"{number} second", rules=OFF)
        )
        assert (settled, answer.status) == (True, "buffered")
        last = await take(two.one)
        assert ids_of(last) == [f"{number} second"]
        assert await two.one.settle(last, Answered())


async def test_two_processes_that_ask_at_once_never_claim_one_conversation_twice(two: Two) -> None:
    for number in range(20):
        await say(two.one, f"m{number}", rules=OFF)
        some, more = await asyncio.gather(two.one.claim(5, LEASE_MS), two.other.claim(5, LEASE_MS))
        claims = [(two.one, claim) for claim in some] + [(two.other, claim) for claim in more]
        assert len(claims) == 1
        holder, claim = claims[0]
        assert await holder.settle(claim, Answered())


async def test_two_processes_that_write_to_one_conversation_keep_every_message(two: Two) -> None:
    """Twenty webhooks at each of them, one after the other: no number is given twice and none is left out."""

    async def write(store: Store, name: str) -> None:
        for number in range(20):
            assert (await say(store, f"{name}-{number}", rules=ROOMY)).status == "buffered"

    await asyncio.gather(write(two.one, "one"), write(two.other, "other"))
    found = await two.one.find(ANN)
    assert found is not None
    assert len(set(ids_of(found))) == 40
    assert [message.seq for message in found.messages] == list(range(1, 41))


async def test_a_process_whose_clock_is_behind_reorders_nothing(two: Two) -> None:
    """It receives the second message half a second before the first, by its own clock."""
    await two.clock.advance(500)
    await say(two.one, "first")
    await say(two.other, "second")
    await two.clock.advance(30_000)
    assert ids_of(await take(two.one)) == ["first", "second"]
