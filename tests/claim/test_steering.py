"""Messages that come during an answer where the rules say "steer": they are shown to it, and it may absorb them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from harness.fake_outbound import Postbox
from harness.turns import ADA, say
from turntake import ClaimLost, Message, Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.buffer.store import Hint
from turntake.observe.observer import Observer
from turntake.rules.records import Append, Claim
from turntake.testing.clock import VirtualClock

STEER = Rules(silence_ms=0, typing_inference_ms=0, on_busy="steer")


async def elsewhere(store: MemoryStore, *texts: str, rules: Rules = STEER) -> None:
    """Messages for Ada that another process accepts."""
    await store.append([Append(ADA, Message(f"ada-{text}", text), rules) for text in texts])


async def test_what_was_absorbed_is_answered_with_the_turn(clock: VirtualClock, store: MemoryStore) -> None:
    postbox = Postbox()

    async def answer(turn: Turn) -> str:
        async for message in turn.arrivals():
            absorbed = await turn.absorb()
            assert absorbed == (turn.messages[-1],)
            assert absorbed[0].text == message.text
            break
        return turn.text

    async with TurnTake(store, rules=STEER, agent=answer, outbound=postbox, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(100)
        (record,) = await turns.store.history.turns(ADA, 10)
        assert record.status == "answered"
    assert postbox.sent == ["first\nsecond"]


async def test_what_was_not_absorbed_waits_for_the_next_turn(clock: VirtualClock, store: MemoryStore) -> None:
    answered = []

    async def answer(turn: Turn) -> None:
        if turn.text == "first":
            await clock.sleep(1_000)
            await turn.absorb()
            await clock.sleep(1_000)
        answered.append(turn.text)

    async with TurnTake(store, rules=STEER, agent=answer, clock=clock) as turns:
        for text in ("first", "second", "third"):
            await say(turns, text)
            await clock.advance(700)
        await clock.advance(5_000)
    assert answered == ["first\nsecond", "third"]


async def test_an_attempt_after_a_failure_has_what_the_one_before_absorbed(
    clock: VirtualClock, store: MemoryStore
) -> None:
    seen = []

    async def answer(turn: Turn) -> None:
        seen.append((turn.attempt, turn.id, turn.text))
        if turn.attempt == 1:
            await clock.sleep(200)
            assert [message.text for message in await turn.absorb()] == ["second"]
            raise RuntimeError("the model is overloaded")

    async with TurnTake(store, rules=STEER, agent=answer, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(10_000)
    assert [(attempt, text) for attempt, _, text in seen] == [(1, "first"), (2, "first\nsecond")]
    assert len({id for _, id, _ in seen}) == 1


@pytest.mark.parametrize("on_busy", ["queue", "interrupt"])
async def test_other_rules_let_nothing_be_absorbed(clock: VirtualClock, store: MemoryStore, on_busy: str) -> None:
    """The same handler runs under all of them."""
    absorbed = []

    async def answer(turn: Turn) -> None:
        await turn.commit()
        await clock.sleep(200)
        absorbed.append(await turn.absorb())

    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy=on_busy)  # type: ignore[arg-type]
    async with TurnTake(store, rules=rules, agent=answer, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(1_000)
    assert absorbed == [(), ()]


async def test_absorbed_messages_are_not_shown_again(clock: VirtualClock, store: MemoryStore) -> None:
    shown = []

    async def answer(turn: Turn) -> None:
        if turn.text != "first":
            return
        await clock.sleep(300)
        async for message in turn.arrivals():
            shown.append(message.text)
            await turn.absorb()
            if message.text == "fourth":
                return

    async with TurnTake(store, rules=STEER, agent=answer, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second", "third")
        await clock.advance(300)
        await say(turns, "fourth")
        await clock.advance(100)
    assert shown == ["second", "fourth"]


async def test_a_message_that_another_process_accepts_is_seen_within_a_second(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """Word of it may be lost: whoever watches looks by itself."""
    seen = []

    async def answer(turn: Turn) -> None:
        async for message in turn.arrivals():
            seen.append((message.text, clock.now()))
            await turn.absorb()
            return

    async with TurnTake(store, rules=STEER, agent=answer, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await elsewhere(store, "second")
        sent_at = clock.now()
        await clock.advance(2_000)
    ((text, seen_at),) = seen
    assert (text, seen_at - sent_at <= 1_000) == ("second", True)


class Announced(MemoryStore):
    """Passes on hints that the test puts into `announced`, as if another process had sent them."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.announced: asyncio.Queue[Hint] = asyncio.Queue()

    async def hints(self) -> AsyncIterator[Hint]:
        while True:
            yield await self.announced.get()


async def test_word_from_another_process_shows_its_message_at_once(clock: VirtualClock) -> None:
    store, seen = Announced(clock), []

    async def answer(turn: Turn) -> None:
        async for message in turn.arrivals():
            seen.append(message.text)
            await turn.absorb()
            return

    async with TurnTake(store, rules=STEER, agent=answer, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await elsewhere(store, "second")
        store.announced.put_nowait(Hint(clock.now() + 1_000, offered=("not a key", str(ADA))))
        await clock.advance(0)
        assert seen == ["second"]


async def test_messages_are_shown_to_an_answer_of_which_a_part_was_sent(
    clock: VirtualClock, store: MemoryStore
) -> None:
    seen = []

    async def answer(turn: Turn) -> None:
        await turn.reply("One moment.")
        async for message in turn.arrivals():
            seen.append(message.text)
            return

    async with TurnTake(store, rules=STEER, agent=answer, outbound=Postbox(), clock=clock, shutdown_ms=0) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(0)
        assert seen == ["second"]


class Absorptions(Observer):
    def __init__(self) -> None:
        self.texts: list[list[str]] = []

    def absorbed(self, at: int, claim: Claim, messages: tuple[Message, ...]) -> None:
        self.texts.append([message.text for message in messages])


async def test_what_is_absorbed_from_outside_belongs_to_whoever_answers_here(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """Those who watch are told of it once."""
    observer = Absorptions()

    async def answer(turn: Turn) -> None:
        await clock.sleep(1_000)

    async with TurnTake(store, rules=STEER, agent=answer, clock=clock, observers=[observer]) as turns:
        for text in ("first", "second"):
            await say(turns, text)
            await clock.advance(100)
        (record,) = await store.history.turns(ADA, 10)
        for _ in range(2):
            await turns.absorb(record.id)
        await clock.advance(1_000)
        assert (await turns.savings.read()).total.messages == 2
    assert observer.texts == [["second"]]


async def test_who_lost_the_claim_absorbs_nothing(clock: VirtualClock, store: MemoryStore) -> None:
    lost = []

    async def answer(turn: Turn) -> None:
        if turn.attempt == 1:
            clock.stall(120_000)
            await store.claim(1, 60_000)
            with pytest.raises(ClaimLost):
                await turn.absorb()
            lost.append(turn.text)

    async with TurnTake(store, rules=STEER, agent=answer, shutdown_ms=0, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
    assert lost == ["first"]


async def test_the_answer_after_absorbing_is_stale_only_by_what_came_since(
    clock: VirtualClock, store: MemoryStore
) -> None:
    postbox = Postbox()
    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="steer", on_stale="regenerate")

    async def answer(turn: Turn) -> str:
        await clock.sleep(1_000)
        await turn.absorb()
        await clock.sleep(1_000)
        return turn.text.replace("\n", " ")

    async with TurnTake(store, rules=rules, agent=answer, outbound=postbox, clock=clock) as turns:
        await say(turns, "a")
        await clock.advance(500)
        await say(turns, "b")
        await clock.advance(3_000)
        await say(turns, "c")
        await clock.advance(1_500)
        await say(turns, "d")
        await clock.advance(5_000)
    assert postbox.sent == ["a b", "c d"]
