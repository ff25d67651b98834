"""Messages that come during an answer: they interrupt it where the rules say so, and are shown to it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from harness.fake_outbound import Postbox
from harness.turns import ADA, AT_ONCE, only_turn, say
from turntake import Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.buffer.store import Hint
from turntake.platforms.replies import Recipient
from turntake.rules.conversation import Touch
from turntake.testing.clock import VirtualClock


async def test_nothing_interrupts_after_commit(clock: VirtualClock, store: MemoryStore) -> None:
    answered = []

    async def answer(turn: Turn) -> None:
        await turn.commit()
        await clock.sleep(1_000)
        answered.append(turn.text)

    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt")
    async with TurnTake(store, rules=rules, agent=answer, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(5_000)
    assert answered == ["first", "second"]


async def test_an_answer_is_interrupted_at_most_so_many_times(clock: VirtualClock, store: MemoryStore) -> None:
    started = []

    async def answer(turn: Turn) -> None:
        started.append(turn.text.split("\n"))
        await clock.sleep(10_000)

    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt", max_interrupts=2)
    async with TurnTake(store, rules=rules, agent=answer, clock=clock) as turns:
        for text in "abcd":
            await say(turns, text)
            await clock.advance(100)
        await clock.advance(30_000)
    assert started == [["a"], ["a", "b"], ["a", "b", "c"], ["d"]]


async def test_a_handler_that_ignores_cancellation_changes_nothing(clock: VirtualClock, store: MemoryStore) -> None:
    postbox = Postbox()

    async def answer(turn: Turn) -> str:
        if len(turn.messages) == 1:
            try:
                await clock.sleep(10_000)
            except asyncio.CancelledError:
                return "stubborn"
        return "both"

    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt")
    turns = TurnTake(store, rules=rules, agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(5_000)
    assert postbox.sent == ["both"]


async def test_a_stubborn_handler_does_not_hide_the_one_after_it(clock: VirtualClock, store: MemoryStore) -> None:
    """It ends while its turn, with one message more, is already being answered again; that answer can be stopped."""
    stopped = []

    async def answer(turn: Turn) -> None:
        try:
            await clock.sleep(10_000)
        except asyncio.CancelledError:
            stopped.append(len(turn.messages))
            if len(turn.messages) > 1:
                raise
            await clock.sleep(500)

    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt", max_interrupts=5)
    async with TurnTake(store, rules=rules, agent=answer, clock=clock) as turns:
        for text in "abc":
            await say(turns, text)
            await clock.advance(1_000)
        assert stopped == [1, 2]
        await clock.advance(20_000)


class Announced(MemoryStore):
    """Passes on hints that the test puts into `announced`, as if another process had sent them."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.announced: asyncio.Queue[Hint] = asyncio.Queue()

    async def hints(self) -> AsyncIterator[Hint]:
        while True:
            yield await self.announced.get()


@pytest.mark.parametrize(("turn", "epoch", "is_stopped"), [("", 0, True), ("", -1, False), ("another", 0, False)])
async def test_word_of_an_interruption_stops_only_the_claim_that_it_names(
    clock: VirtualClock, turn: str, epoch: int, is_stopped: bool
) -> None:
    """It may come late: the same turn may have been claimed again since, perhaps to send its answer."""
    store, stopped = Announced(clock), []

    async def answer(turn: Turn) -> None:
        try:
            await clock.sleep(10_000)
        except asyncio.CancelledError:
            stopped.append(turn.text)
            raise

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        record = await only_turn(turns)
        named = (str(ADA), turn or record.id, record.epoch + epoch)
        store.announced.put_nowait(Hint(clock.now(), (("not a key", "t", 1), named)))
        await clock.advance(100)
        assert bool(stopped) == is_stopped
        await clock.advance(20_000)


async def test_arrivals_are_shown_to_the_running_handler(clock: VirtualClock, store: MemoryStore) -> None:
    shown, answered = [], []

    async def answer(turn: Turn) -> None:
        answered.append(turn.text)
        if turn.text == "first":
            async for message in turn.arrivals():
                shown.append(message.text)
                return

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(100)
    assert shown == ["second"]
    assert answered == ["first", "second"]


@pytest.mark.parametrize("fails", [False, True])
async def test_arrivals_end_with_the_handler(clock: VirtualClock, store: MemoryStore, fails: bool) -> None:
    """Also for a task that the handler left behind, which would wait for ever."""
    watchers: list[asyncio.Future[list[str]]] = []

    async def watch(turn: Turn) -> list[str]:
        return [message.text async for message in turn.arrivals()]

    async def answer(turn: Turn) -> None:
        watchers.append(asyncio.ensure_future(watch(turn)))
        await clock.sleep(200)
        if fails:
            raise RuntimeError

    async with TurnTake(store, rules=AT_ONCE, agent=answer, shutdown_ms=1, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(200)
        assert watchers[0].done()
        assert await watchers[0] == ["second"]


async def test_a_task_that_the_handler_left_behind_sees_what_comes_while_the_answer_is_sent(
    clock: VirtualClock, store: MemoryStore
) -> None:
    watchers: list[asyncio.Future[list[str]]] = []

    class Slow(Postbox):
        async def send(self, to: Recipient, index: int, text: str) -> str:
            await clock.sleep(1_000)
            return await super().send(to, index, text)

    async def watch(turn: Turn) -> list[str]:
        return [message.text async for message in turn.arrivals()]

    async def answer(turn: Turn) -> str:
        watchers.append(asyncio.ensure_future(watch(turn)))
        return "hi"

    async with TurnTake(store, rules=AT_ONCE, agent=answer, outbound=Slow(), clock=clock, shutdown_ms=0) as turns:
        await say(turns, "first")
        await clock.advance(100)
        assert (await only_turn(turns)).status == "replying"
        await say(turns, "second")
        await clock.advance(1_000)
        assert watchers[0].done()
        assert await watchers[0] == ["second"]


async def test_arrivals_have_their_number_and_their_time() -> None:
    clock, shown = VirtualClock(), []

    async def answer(turn: Turn) -> None:
        if turn.text == "first":
            async for message in turn.arrivals():
                shown.append((message.seq, message.received_at))
                return

    async with TurnTake("memory://", rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await turns.receive("first", conversation="ada", id="m1")
        await clock.advance(100)
        await turns.receive("second", conversation="ada", id="m2")
        await clock.advance(100)
    assert shown == [(2, clock.now() - 100)]


async def test_an_interruption_after_a_flush_waits_for_silence_again() -> None:
    clock, started = VirtualClock(), []

    async def answer(turn: Turn) -> None:
        started.append((clock.now() - began, len(turn.messages)))
        await clock.sleep(60_000)

    began = clock.now()
    rules = Rules(typing_inference_ms=0, on_busy="interrupt")
    async with TurnTake("memory://", rules=rules, agent=answer, shutdown_ms=1, clock=clock) as turns:
        await turns.receive("one", conversation="ada", id="m1")
        await turns.touch(ADA, Touch("flush"))
        await clock.advance(100)
        for text in ("two", "three"):
            await turns.receive(text, conversation="ada", id=text)
            await clock.advance(100)
        await clock.advance(5_000)
    assert started == [(0, 1), (1_200, 3)]
