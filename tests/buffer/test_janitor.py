"""What ended long ago is forgotten, and nothing else."""

import asyncio

import pytest

from turntake import ConversationKey, Rules, StoreUnavailable, Turn, TurnTake
from turntake.buffer.janitor import BUSY_PAUSE_MS, PAUSE_MS, Janitor, keep_forgetting
from turntake.buffer.memory import MemoryStore
from turntake.clock import DAY_MS
from turntake.rules.records import ClosedPoint, IsChosen, Looked
from turntake.rules.retention import Retention
from turntake.rules.scopes import RuleBook, layers_in
from turntake.testing.clock import VirtualClock

ADA = ConversationKey.of("ada")
HOUR_MS = 3_600_000


async def answer(turn: Turn) -> None:
    if turn.text == "fail":
        raise RuntimeError


def turns(clock: VirtualClock, store: MemoryStore, letters_keep_ms: int = 0) -> TurnTake:
    rules = Rules(silence_ms=0, typing_inference_ms=0, max_attempts=1)
    return TurnTake(store, rules=rules, agent=answer, keep_ms=HOUR_MS, letters_keep_ms=letters_keep_ms, clock=clock)


async def later(clock: VirtualClock, duration_ms: int) -> None:
    """So much later, after the janitor came round."""
    await clock.advance(1)
    clock.stall(duration_ms)
    await clock.advance(2 * PAUSE_MS)


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


async def test_a_message_that_comes_again_is_known_for_longer_than_what_was_said() -> None:
    """The words are gone after an hour, the id after eight days; then the conversation is gone too."""
    clock = VirtualClock()
    store = MemoryStore(clock)
    async with turns(clock, store) as running:
        await running.receive("hi", conversation="ada", id="m1")
        await later(clock, 8 * DAY_MS - HOUR_MS)
        assert await store.history.turns(ADA, 10) == []
        assert (await running.receive("hi", conversation="ada", id="m1")).status == "duplicate"
        await later(clock, 3 * HOUR_MS)
        assert await store.find(ADA) is None
        assert (await running.receive("hi", conversation="ada", id="m1")).status == "buffered"


async def test_a_dead_letter_is_discarded_after_its_time_if_it_has_one(caplog: pytest.LogCaptureFixture) -> None:
    """Never without a word in the log."""
    clock = VirtualClock()
    store = MemoryStore(clock)
    async with turns(clock, store, letters_keep_ms=DAY_MS) as running:
        await running.receive("fail", conversation="ada", id="m1")
        await later(clock, DAY_MS - HOUR_MS)
        assert len((await store.letters.list(10)).items) == 1
        await later(clock, 2 * HOUR_MS)
        assert (await store.letters.list(10)).items == ()
        assert await store.history.turns(ADA, 10) == []
    assert "Dead letters were discarded for their age" in caplog.text


async def test_a_clock_that_is_ahead_makes_nothing_older() -> None:
    """A process once saw a time nine days later. What was answered just before is as old as the clock says."""
    clock = VirtualClock()
    store = MemoryStore(clock)
    async with turns(clock, store) as running:
        await running.receive("hi", conversation="ada", id="m1")
        await clock.advance(1)
        clock.not_before(clock.now() + 9 * DAY_MS)
        await later(clock, HOUR_MS // 2)
        assert len(await store.history.turns(ADA, 10)) == 1
        await later(clock, HOUR_MS)
        assert await store.history.turns(ADA, 10) == []
        assert (await running.receive("hi", conversation="ada", id="m1")).status == "duplicate"


class Doubting(VirtualClock):
    """Nobody saw its last nine days pass."""

    @property
    def doubtful_ms(self) -> int:
        return 9 * DAY_MS


async def test_a_jump_of_days_that_nobody_saw_pass_forgets_no_id_and_no_letter() -> None:
    """The machine was off, or its clock is wrong: only what was said goes, as it was asked for."""
    clock = Doubting()
    store = MemoryStore(clock)
    async with turns(clock, store, letters_keep_ms=DAY_MS) as running:
        await running.receive("hi", conversation="ada", id="m1")
        await running.receive("fail", conversation="ben", id="m1")
        await later(clock, 9 * DAY_MS)
        assert await store.history.turns(ADA, 10) == []
        assert (await running.receive("hi", conversation="ada", id="m1")).status == "duplicate"
        assert len((await store.letters.list(10)).items) == 1


async def test_a_dead_letter_is_not_forgotten() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    async with turns(clock, store) as running:
        await running.receive("fail", conversation="ada", id="m1")
        await clock.advance(3 * HOUR_MS)
        assert [letter.reason for letter in (await store.letters.list(10)).items] == ["failed once"]


async def test_a_store_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    forget, absences = store.history.forget, [ConnectionError(), StoreUnavailable()]

    async def away_at_first(before: int, ids_before: int | None = None) -> int:
        if absences:
            raise absences.pop()
        return await forget(before, ids_before)

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

    async def forget(before: int, ids_before: int) -> int:
        asked.append((clock.now() - start, clock.now() - before))
        if (result := next(results, 0)) is None:
            raise StoreUnavailable
        return result

    monkeypatch.setattr(store.history, "forget", forget)
    janitor = asyncio.create_task(keep_forgetting(store, Retention(HOUR_MS, HOUR_MS)))
    await clock.advance(3 * BUSY_PAUSE_MS + 3 * PAUSE_MS - 1)
    janitor.cancel()
    busy = 3 * BUSY_PAUSE_MS
    assert [at for at, _ in asked] == [0, BUSY_PAUSE_MS, 2 * BUSY_PAUSE_MS, busy, busy + PAUSE_MS, busy + 2 * PAUSE_MS]
    assert {kept_ms for _, kept_ms in asked} == {HOUR_MS}


async def kept(store: MemoryStore, *tenants: str) -> list[str]:
    """The tenants of which a turn is left."""
    keys = {tenant: ConversationKey.of("ada", tenant=tenant) for tenant in tenants}
    return [tenant for tenant, key in keys.items() if await store.history.turns(key, 1)]


async def test_each_tenant_has_its_own_time() -> None:
    """Shorter or longer than the others'; a change of the rules counts for what is there already."""
    clock = VirtualClock()
    store = MemoryStore(clock)
    book = RuleBook(layers_in({"tenant": {"short": {"history_keep_ms": HOUR_MS}, "long": {"history_keep_ms": DAY_MS}}}))
    janitor = Janitor(store, Retention(6 * HOUR_MS, 0), lambda: book)
    turns = TurnTake(store, rules=Rules(enabled=False), agent=answer, clock=clock, keep_ms=10 * DAY_MS)
    async with turns:
        for tenant in ("short", "usual", "long"):
            await turns.receive("hi", conversation="ada", id="m1", tenant=tenant)
        await clock.advance(1_000)
        for passed_ms, left in (
            (HOUR_MS - 2_000, ["short", "usual", "long"]),
            (2_000, ["usual", "long"]),
            (5 * HOUR_MS, ["long"]),
        ):
            clock.stall(passed_ms)
            await janitor.forget()
            assert await kept(store, "short", "usual", "long") == left
        book = RuleBook()
        await janitor.forget()
        assert await kept(store, "long") == []


async def test_a_turn_is_looked_at_once_for_each_time_and_not_every_minute() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    book = RuleBook(layers_in({"tenant": {"short": {"history_keep_ms": HOUR_MS}}}))
    janitor = Janitor(store, Retention(6 * HOUR_MS, 0), lambda: book)
    looked: list[int] = []
    chosen = store.history.forget_chosen

    async def counting(is_chosen: IsChosen, after: ClosedPoint, *times: int) -> Looked:
        def counted(key: ConversationKey, agent: str) -> bool:
            looked.append(after.at)
            return is_chosen(key, agent)

        return await chosen(counted, after, *times)

    store.history.forget_chosen = counting  # type: ignore[method-assign, assignment]
    async with TurnTake(store, rules=Rules(enabled=False), agent=answer, clock=clock, keep_ms=10 * DAY_MS) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(1_000)
        for _ in range(5):
            clock.stall(HOUR_MS // 2)
            await janitor.forget()
    assert len(looked) == 1
    assert await kept(store, "default") == ["default"]
