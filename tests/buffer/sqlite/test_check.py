"""Whether the store takes messages now, asked by many at once."""

import asyncio

import pytest

from turntake.buffer.sqlite.backend import SqliteStore
from turntake.errors import StoreUnavailable
from turntake.testing.clock import VirtualClock


async def test_those_who_ask_at_the_same_time_share_one_look_and_its_outcome(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One who gives up keeps the answer from nobody; whoever asks later gets a look of their own."""
    looks = 0
    answers = asyncio.Event()

    async def look() -> None:
        nonlocal looks
        looks += 1
        await answers.wait()
        if looks == 1:
            raise StoreUnavailable("away")

    async with SqliteStore(path, clock) as store:
        monkeypatch.setattr(store.backend, "probe", look)
        impatient, *patient = [asyncio.ensure_future(store.check()) for _ in range(3)]
        await clock.advance(0)
        impatient.cancel()
        await clock.advance(0)
        answers.set()
        found = await asyncio.gather(*patient, return_exceptions=True)
        assert [type(error) for error in found] == [StoreUnavailable, StoreUnavailable]
        assert looks == 1
        await store.check()
        assert looks == 2
