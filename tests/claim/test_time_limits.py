"""How long a handler may take, and what is said when every slot is taken or the event loop stands still."""

import asyncio
import logging
import threading

import pytest

from harness.turns import AT_ONCE, only_turn, say, silent
from turntake import Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.claim.handler_limits import HandlerLimits
from turntake.deliver.sink import Answer, Sink
from turntake.testing.clock import VirtualClock


async def test_a_handler_that_hangs_is_cancelled_and_has_failed(
    clock: VirtualClock, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Two minutes by default; after the last attempt the dead letter says so."""
    ended = []

    async def hang(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(turn.attempt)

    async with TurnTake(store, rules=AT_ONCE, agent=hang, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(119_000)
        assert ended == []
        await clock.advance(2_000)
        assert ended == [1]
        await clock.advance(500_000)
        (letter,) = (await store.letters.list(10)).items
    assert ended == [1, 2, 3]
    assert letter.reason == "timed_out"
    assert "worker.handler_ms" in letter.error
    assert "took too long" in caplog.text


async def test_two_handlers_that_hang_do_not_stop_everybody(clock: VirtualClock, store: MemoryStore) -> None:
    answered = []

    async def answer(turn: Turn) -> None:
        if turn.text == "hang":
            await asyncio.Event().wait()
        answered.append(turn.text)

    async with TurnTake(
        store, rules=AT_ONCE, agent=answer, concurrency=2, handler_ms=5_000, shutdown_ms=1, clock=clock
    ) as turns:
        await say(turns, "hang", to="ada")
        await say(turns, "hang", to="bob")
        await clock.advance(1_000)
        await say(turns, "hello", to="cyd")
        await clock.advance(6_000)
    assert answered == ["hello"]


async def test_a_handler_that_extends_its_turn_gets_that_much_longer(clock: VirtualClock, store: MemoryStore) -> None:
    """Once for all of it, or again and again for as long as it lives."""

    async def answer(turn: Turn) -> str:
        if turn.text == "once":
            await turn.extend(600_000)
            await clock.sleep(590_000)
        else:
            for _ in range(20):
                await turn.extend()
                await clock.sleep(50_000)
        return "done"

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "once", to="ada")
        await say(turns, "again", to="bob")
        await clock.advance(1_100_000)
        assert (await only_turn(turns)).status == "answered"
        assert (await store.letters.list(10)).items == ()


async def test_a_handler_that_extends_its_turn_gets_no_less_time(clock: VirtualClock, store: MemoryStore) -> None:
    """Two minutes are longer than the lease, which is what it extends by if it says nothing else; also when the time of
    another is over meanwhile."""
    answered = []

    async def answer(turn: Turn) -> None:
        if turn.text == "second":
            await turn.extend()
        await clock.sleep(119_000 if turn.text == "second" else 1_000_000)
        answered.append(turn.text)

    async with TurnTake(store, rules=AT_ONCE, agent=answer, shutdown_ms=1, clock=clock) as turns:
        await say(turns, "first", to="ada")
        await clock.advance(55_000)
        await say(turns, "second", to="bob")
        await clock.advance(119_500)
    assert answered == ["second"]


async def test_what_follows_a_handler_has_its_limit_no_more(clock: VirtualClock) -> None:
    limits = HandlerLimits(clock, 5_000)
    with limits.begin():
        await clock.advance(4_000)
    await clock.advance(4_000)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_handler_that_makes_a_timeout_of_its_cancellation_has_taken_too_long(
    clock: VirtualClock, store: MemoryStore
) -> None:
    async def answer(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise TimeoutError from None

    rules = Rules(silence_ms=0, max_attempts=1)
    async with TurnTake(store, rules=rules, agent=answer, handler_ms=5_000, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(6_000)
        (letter,) = (await store.letters.list(10)).items
    assert letter.reason == "timed_out"


async def test_each_handler_ends_at_its_own_time(clock: VirtualClock, store: MemoryStore) -> None:
    """One timer serves all of them, whoever began when, whoever ended before, and whoever was given longer."""
    ended: dict[str, int] = {}
    start = clock.now()

    async def answer(turn: Turn) -> None:
        try:
            if turn.text == "extends":
                await turn.extend(60_000)
            await clock.sleep(1 if turn.text == "quick" else 1_000_000)
        finally:
            ended[turn.text] = (clock.now() - start) // 1_000

    rules = Rules(silence_ms=0, max_attempts=1)
    async with TurnTake(store, rules=rules, agent=answer, handler_ms=5_000, clock=clock) as turns:
        for text in ("quick", "first", "extends", "last"):
            await say(turns, text, to=text)
            await clock.advance(2_000)
        await clock.advance(70_000)
        letters = (await store.letters.list(10)).items
    assert ended == {"quick": 0, "first": 7, "last": 11, "extends": 64}
    assert {letter.reason for letter in letters} == {"timed_out"}


async def test_a_handler_that_answers_though_it_was_cancelled_has_answered(
    clock: VirtualClock, store: MemoryStore
) -> None:
    async def answer(turn: Turn) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await clock.sleep(100)
        return "in short"

    async with TurnTake(store, rules=AT_ONCE, agent=answer, handler_ms=5_000, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(6_000)
        record = await only_turn(turns)
    assert record.status == "answered"
    assert record.turn is not None
    assert record.turn.progress.replies == ("in short",)


async def test_a_handler_that_is_interrupted_when_its_time_is_over_has_not_failed(
    clock: VirtualClock, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Both cancel it, and the person's word counts."""
    started = []

    async def answer(turn: Turn) -> str:
        started.append(turn.text)
        if turn.text == "hello":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await say(turns, "and more")
                raise
        return "answer"

    rules = Rules(silence_ms=0, on_busy="interrupt", max_attempts=1)
    async with TurnTake(store, rules=rules, agent=answer, handler_ms=5_000, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(6_000)
        letters = (await store.letters.list(10)).items
    assert started == ["hello", "hello\nand more"]
    assert letters == ()
    assert "took too long" not in caplog.text


async def test_a_plain_function_that_hangs_is_no_longer_waited_for(clock: VirtualClock, store: MemoryStore) -> None:
    """Nobody can stop its thread; what it returns counts for nothing."""
    release, started = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(turn: Turn) -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(20)
        return "too late"

    rules = Rules(silence_ms=0, max_attempts=1)
    async with TurnTake(store, rules=rules, agent=hang, handler_ms=5_000, shutdown_ms=1, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(1)
        await started.wait()
        await clock.advance(5_000)
        (letter,) = (await store.letters.list(10)).items
        release.set()
    assert letter.reason == "timed_out"


async def test_a_time_limit_of_the_handlers_own_is_a_failure_like_any_other(
    clock: VirtualClock, store: MemoryStore
) -> None:
    async def answer(turn: Turn) -> None:
        raise TimeoutError("the model took too long")

    async with TurnTake(store, rules=Rules(silence_ms=0, max_attempts=1), agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        (letter,) = (await store.letters.list(10)).items
    assert (letter.reason, letter.error) == ("failed once", "TimeoutError: the model took too long")


async def test_a_sink_with_a_time_limit_of_its_own_gets_no_other(clock: VirtualClock, store: MemoryStore) -> None:
    class Patient(Sink):
        is_bounded = True

        async def deliver(self, turn: Turn) -> Answer:
            await clock.sleep(300_000)
            return Answer(("done",))

    async with TurnTake(store, rules=AT_ONCE, agent=Patient(), clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(310_000)
        assert (await only_turn(turns)).status == "answered"


async def test_slots_that_stay_taken_are_said_aloud(
    clock: VirtualClock, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """After half a minute, in the log and to whoever asks; it is over when one is free."""

    async def slow(turn: Turn) -> None:
        await clock.sleep(60_000)

    async with TurnTake(store, rules=AT_ONCE, agent=slow, concurrency=1, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(20_000)
        assert turns.slots_full_ms == 0
        assert "slot" not in caplog.text
        await clock.advance(20_000)
        assert 30_000 <= turns.slots_full_ms <= 40_000
        assert caplog.text.count("Every slot has been taken") == 1
        await clock.advance(25_000)
        assert turns.slots_full_ms == 0


async def test_an_event_loop_that_stood_still_is_said_aloud(
    clock: VirtualClock, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Two seconds are enough; a moment is nothing."""
    async with TurnTake(store, agent=silent, clock=clock):
        await clock.advance(10)
        clock.stall(1_500)
        await clock.advance(1)
        assert "stood still" not in caplog.text
        clock.stall(5_000)
        await clock.advance(1)
    (record,) = [record for record in caplog.records if "stood still" in record.message]
    assert record.levelno == logging.WARNING
    assert 2_000 <= vars(record)["late_ms"] <= 5_000
