"""Places to send from: so many of each account at a time, and never more."""

import asyncio
from contextlib import AsyncExitStack

from turntake.claim.sending import LONGEST_WAIT_MS, PLACES, SendingPlaces
from turntake.testing.clock import VirtualClock

ACCOUNT = ("acme", "telegram", "bot")


async def test_whoever_waited_in_vain_gives_no_place_away() -> None:
    """It never had one: if it gave one back, more would send at once than may."""
    clock = VirtualClock()
    places = SendingPlaces(clock)

    async def has_place() -> bool:
        async with places.taken(ACCOUNT) as is_taken:
            return is_taken

    async with AsyncExitStack() as held:
        for _ in range(PLACES):
            assert await held.enter_async_context(places.taken(ACCOUNT))
        for _ in range(2):
            waiting = asyncio.create_task(has_place())
            await clock.advance(LONGEST_WAIT_MS)
            assert not await waiting
        async with places.taken(("acme", "telegram", "other")) as is_taken:
            assert is_taken, "another account has places of its own"
    assert await has_place(), "all were given back"
