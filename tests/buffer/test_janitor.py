"""What ended long ago is forgotten, and nothing else."""

import asyncio

import pytest

from turntake import ConversationKey, Rules, StoreUnavailable, Turn, TurnTake
from turntake.buffer.janitor import BUSY_PAUSE_MS, PAUSE_MS, HistoryOptions, keep_forgetting
from turntake.buffer.memory import MemoryStore
from turntake.testing.clock import VirtualClock

ADA = ConversationKey.of("ada")
HOUR_MS = 3_600_000


async def answer(turn: Turn) -> None:
    if turn.text == "fail":
        raise RuntimeError


def turns(clock: VirtualClock, store: MemoryStore) -> TurnTake:
    rules = Rules(silence_ms=0, typing_inference_ms=0, max_attempts=1)
    return TurnTake(store, rules=rules, agent=answer, keep_ms=HOUR_MS, clock=clock)


async def test_a_settled_turn_is_forgotten_after_its_time() -> None:
    """Within a minute of it, and not before."""
    clock = VirtualClock()
    store = MemoryStore(clock)
    async with turns(clock, store) as running:
        await running.receive("hi", conversation="ada", id="m1")
        await clock.advance(HOUR_MS - PAUSE_MS)
        assert len(await store.history.turns(ADA, 10)) == 1
        await clock.advance(2 * PAUSE_MS)
        assert await store.history.turns(ADA, 10) == []


async def test_a_dead_letter_is_not_forgotten() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    async with turns(clock, store) as running:
        await running.receive("fail", conversation="ada", id="m1")
        await clock.advance(3 * HOUR_MS)
        assert [letter.reason for letter in (await store.letters.list(10)).items] == ["failed 1 times"]


async def test_a_store_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    forget, absences = store.history.forget, [ConnectionError(), StoreUnavailable()]

    async def away_at_first(before: int) -> int:
        if absences:
            raise absences.pop()
        return await forget(before)

    monkeypatch.setattr(store.history, "forget", away_at_first)
    async with turns(clock, store) as running:
        await running.receive("hi", conversation="ada", id="m1")
        await clock.advance(HOUR_MS + 3 * PAUSE_MS)
        assert await store.history.turns(ADA, 10) == []


async def test_it_hurries_only_while_there_is_more_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away is not asked ten times a second, and neither is one with nothing to forget."""
    clock = VirtualClock()
    store, start = MemoryStore(clock), clock.now()
    results = iter([200, 200, 3, 0, None, 0])
    asked: list[tuple[int, int]] = []

    async def forget(before: int) -> int:
        asked.append((clock.now() - start, clock.now() - before))
        if (result := next(results, 0)) is None:
            raise StoreUnavailable
        return result

    monkeypatch.setattr(store.history, "forget", forget)
    janitor = asyncio.create_task(keep_forgetting(store, HistoryOptions(keep_ms=HOUR_MS)))
    await clock.advance(3 * BUSY_PAUSE_MS + 3 * PAUSE_MS - 1)
    janitor.cancel()
    busy = 3 * BUSY_PAUSE_MS
    assert [at for at, _ in asked] == [0, BUSY_PAUSE_MS, 2 * BUSY_PAUSE_MS, busy, busy + PAUSE_MS, busy + 2 * PAUSE_MS]
    assert {kept_ms for _, kept_ms in asked} == {HOUR_MS}
