"""The alarm: sleeps as long as it may, and no longer."""

import asyncio

from turntake.claim.alarm import Alarm
from turntake.testing.clock import VirtualClock


async def test_it_wakes_at_the_deadline_it_knows() -> None:
    clock = VirtualClock()
    sleep = asyncio.create_task(Alarm(clock).sleep(clock.now() + 300))
    await clock.advance(299)
    assert not sleep.done()
    await clock.advance(1)
    assert sleep.done()


async def test_a_ring_for_an_earlier_deadline_wakes_it_then() -> None:
    clock = VirtualClock()
    alarm = Alarm(clock)
    sleep = asyncio.create_task(alarm.sleep(clock.now() + 900))
    await clock.advance(0)
    alarm.ring(clock.now() + 100)
    alarm.ring(clock.now() + 500)
    await clock.advance(99)
    assert not sleep.done()
    await clock.advance(1)
    assert sleep.done()


async def test_a_time_that_an_earlier_ring_replaced_wakes_nobody() -> None:
    """Whoever slept again by then would look in vain."""
    clock = VirtualClock()
    alarm = Alarm(clock, horizon_ms=5_000)
    sleep = asyncio.create_task(alarm.sleep(clock.now() + 900))
    await clock.advance(0)
    alarm.ring(clock.now() + 100)
    await clock.advance(100)
    assert sleep.done()
    sleep = asyncio.create_task(alarm.sleep(clock.now() + 2_000))
    await clock.advance(1_999)
    assert not sleep.done()
    await clock.advance(1)
    assert sleep.done()


async def test_a_ring_before_it_falls_asleep_is_not_lost() -> None:
    clock = VirtualClock()
    alarm = Alarm(clock)
    alarm.ring(clock.now() + 100)
    sleep = asyncio.create_task(alarm.sleep(None))
    await clock.advance(100)
    assert sleep.done()


async def test_without_any_ring_it_looks_again_at_the_horizon() -> None:
    clock = VirtualClock()
    sleep = asyncio.create_task(Alarm(clock, horizon_ms=1_000).sleep(None))
    await clock.advance(999)
    assert not sleep.done()
    await clock.advance(1)
    assert sleep.done()


async def test_it_says_how_late_it_woke() -> None:
    """A process that stood still is told so by its own alarm; one that was in time is not late at all."""
    clock = VirtualClock()
    alarm = Alarm(clock)
    sleep = asyncio.create_task(alarm.sleep(clock.now() + 300))
    await clock.advance(300)
    assert await sleep == 0
    sleep = asyncio.create_task(alarm.sleep(clock.now() + 300))
    await clock.advance(0)
    clock.stall(5_000)
    await clock.advance(0)
    assert await sleep == 4_700
