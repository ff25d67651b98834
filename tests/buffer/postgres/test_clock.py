"""The server's time rules, and never goes back."""

import pytest

from harness.postgres_store import ask
from turntake.buffer.postgres.backend import PostgresStore
from turntake.clock import SystemClock
from turntake.testing.clock import START, VirtualClock
from turntake.testing.store_contract import say


async def test_a_clock_that_follows_goes_by_the_servers(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the store opens, at every write, for some only accept, and at every look at the next deadline.

    One that tests move by hand does not.
    """
    clock, hand = SystemClock(), VirtualClock()
    told: list[int] = []
    monkeypatch.setattr(clock, "follow", lambda at, seen_at=0: told.append(at))
    monkeypatch.setattr(hand, "follow", lambda at, seen_at=0: pytest.fail("it follows nobody"))
    async with PostgresStore.open(url, clock) as store, PostgresStore.open(url, hand) as other:
        await say(store, "m1")
        await say(other, "m2")
        assert len(told) == 2
        await store.next_due()
        await other.next_due()
    assert len(told) == 3
    assert all(abs(at - clock.now()) < 10_000 for at in told)


@pytest.mark.parametrize("is_accepting", [True, False])
async def test_processes_of_an_older_later_time_and_new_ones_meet(url: str, is_accepting: bool) -> None:
    """As after a failover to a server whose clock is behind: the old ones go on as before."""
    old_clock, new_clock = SystemClock(), SystemClock()
    async with PostgresStore.open(url, old_clock) as old, PostgresStore.open(url, new_clock) as new:
        old_clock.not_before(old_clock.now() + 10_000)
        await say(old, "m1")
        assert old_clock.now() - new_clock.now() > 9_000
        if is_accepting:
            await say(new, "m2")
        else:
            await new.next_due()
        assert old_clock.now() - new_clock.now() < 1_000


async def test_nobody_goes_by_a_process_that_is_only_a_little_ahead(url: str) -> None:
    """It drifted, and comes back by itself; if all went by each other, nobody would."""
    fast, right = SystemClock(), SystemClock()
    async with PostgresStore.open(url, fast) as one, PostgresStore.open(url, right) as other:
        fast.not_before(fast.now() + 200)
        await say(one, "m1")
        await say(other, "m2")
        await other.next_due()
        assert fast.now() - right.now() > 100


async def test_time_never_goes_back_behind_what_the_store_saw(url: str, clock: VirtualClock) -> None:
    """It is noted about once a second, and only by those who did something."""
    noted = "SELECT seen_at FROM turntake.clock"
    async with PostgresStore.open(url, clock) as store:
        await clock.advance(5_000)
        await store.next_due()
        assert ask(url, noted) == [(0,)]
        await say(store, "m1")
        assert ask(url, noted) == [(START + 5_000,)], "some only accept"
        await clock.advance(999)
        await say(store, "m2")
        await store.next_due()
        assert ask(url, noted) == [(START + 5_000,)]
        await clock.advance(1_000)
        assert (await say(store, "m1")).status == "duplicate"
        assert ask(url, noted) == [(START + 5_000,)], "nothing was written"
        await clock.advance(3_600_000)
        await store.next_due()
    late = VirtualClock()
    async with PostgresStore.open(url, late):
        assert late.now() == clock.now()
