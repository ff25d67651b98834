"""Edits and deletions: what the agent sees of them, and when it is not asked at all."""

from typing import Any

import pytest

from harness.fake_outbound import Postbox
from turntake import Arrival, ConversationKey, Message, RetryLater, Rules, Turn, TurnTake
from turntake.arrival import Receipt
from turntake.buffer.memory import MemoryStore
from turntake.observe.stream import TurnClaimed
from turntake.rules.records import TurnRecord
from turntake.testing.clock import VirtualClock

ADA = ConversationKey.of("ada")


class Agent:
    """Notes what it was asked, and takes its time."""

    def __init__(self, clock: VirtualClock, thinking_ms: int = 0) -> None:
        self.asked: list[str] = []
        self.heard: list[str] = []
        self._clock = clock
        self._thinking_ms = thinking_ms

    async def answer(self, turn: Turn) -> str:
        self.asked.append(turn.text)
        await self._clock.sleep(self._thinking_ms)
        return "noted"

    async def listen(self, turn: Turn) -> None:
        self.asked.append(turn.text)
        async for message in turn.arrivals():
            self.heard.append(message.text)
            if message.text == "enough":
                return


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def say(turns: TurnTake, *texts: str) -> None:
    for text in texts:
        await turns.receive(text, conversation="ada", id=text)


async def amend(turns: TurnTake, target: str, text: str = "", **more: Any) -> Receipt:
    message = Message(f"{target} -> {text}", text, amends=target, **more)
    (receipt,) = await turns.accept([Arrival(ADA, message)])
    return receipt


async def records(turns: TurnTake) -> list[TurnRecord]:
    return await turns.store.history.turns(ADA, 10)


async def test_an_edit_in_time_is_what_the_agent_reads(clock: VirtualClock) -> None:
    """At the time at which it would have read the first wording."""
    agent = Agent(clock)
    async with TurnTake(MemoryStore(clock), agent=agent.answer, clock=clock) as turns:
        await say(turns, "at five")
        await clock.advance(900)
        receipt = await amend(turns, "at five", "at six")
        assert receipt == Receipt("buffered", ADA, 1, clock.now() + 100, "silence")
        await clock.advance(100)
        assert agent.asked == ["at six"]
        await clock.advance(60_000)
        assert len(await records(turns)) == 1


async def test_what_was_deleted_in_time_is_not_read(clock: VirtualClock) -> None:
    agent = Agent(clock)
    async with TurnTake(MemoryStore(clock), agent=agent.answer, clock=clock) as turns:
        await say(turns, "hello", "oops")
        await amend(turns, "oops", is_deletion=True)
        await clock.advance(30_000)
    assert agent.asked == ["hello"]


@pytest.mark.parametrize("is_deletion", [True, False], ids=["deleted", "edited to nothing"])
async def test_a_turn_without_messages_is_over_and_nobody_is_asked(clock: VirtualClock, is_deletion: bool) -> None:
    """It is claimed when it is due and answered with nothing, for watchers and in the history."""
    agent, postbox = Agent(clock), Postbox()
    async with (
        TurnTake(MemoryStore(clock), agent=agent.answer, outbound=postbox, clock=clock) as turns,
        turns.events.watch() as seen,
    ):
        await say(turns, "oops")
        await amend(turns, "oops", is_deletion=is_deletion)
        await clock.advance(1_000)
        (record,) = await records(turns)
        assert (record.status, record.messages) == ("answered", ())
        kinds = [seen.get_nowait() for _ in range(seen.qsize())]
        assert [event.kind for event in kinds] == ["buffered", "buffered", "due", "claimed", "answered"]
        claimed = kinds[3]
        assert isinstance(claimed, TurnClaimed)
        assert claimed.messages == 0
    assert (agent.asked, postbox.sent) == ([], [])


async def test_an_edit_during_the_answer_neither_changes_it_nor_starts_another(clock: VirtualClock) -> None:
    """It comes too late, even if the turn is tried again, and there is nothing else that it could change."""
    agent = Agent(clock, thinking_ms=5_000)

    async def answer(turn: Turn) -> str:
        await agent.answer(turn)
        if turn.attempt == 1:
            raise RetryLater(1)
        return "noted"

    rules = Rules(on_busy="interrupt")
    async with TurnTake(MemoryStore(clock), rules=rules, agent=answer, clock=clock) as turns:
        await say(turns, "at five")
        await clock.advance(2_000)
        assert (await amend(turns, "at five", "at six")).status == "ignored"
        await clock.advance(60_000)
        assert (await amend(turns, "at five", "at seven")).status == "ignored"
        await clock.advance(60_000)
        (record,) = await records(turns)
        assert [message.text for message in record.messages] == ["at five"]
    assert agent.asked == ["at five", "at five"]


async def test_an_edit_of_what_waits_behind_an_answer_counts(clock: VirtualClock) -> None:
    """The next turn has it."""
    agent = Agent(clock, thinking_ms=5_000)
    async with TurnTake(MemoryStore(clock), agent=agent.answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(2_000)
        await say(turns, "at five")
        assert (await amend(turns, "at five", "at six")).status == "buffered"
        await clock.advance(60_000)
    assert agent.asked == ["hello", "at six"]


async def test_a_handler_that_watches_hears_of_messages_and_not_of_amendments(clock: VirtualClock) -> None:
    """An edit is no news of its own: whoever gets the next turn gets the message as it was left."""
    agent = Agent(clock)
    async with TurnTake(MemoryStore(clock), agent=agent.listen, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(1_000)
        await say(turns, "at five")
        await amend(turns, "at five", "at six")
        await say(turns, "enough")
        await clock.advance(0)
        assert (agent.asked, agent.heard) == (["hello"], ["at five", "enough"])


async def test_one_person_cannot_edit_what_another_said(clock: VirtualClock) -> None:
    agent = Agent(clock)
    async with TurnTake(MemoryStore(clock), agent=agent.answer, clock=clock) as turns:
        await turns.receive("I pay", conversation="ada", id="m1", sender="ann")
        await amend(turns, "m1", "I do not pay", sender="ben")
        await clock.advance(1_000)
    assert agent.asked == ["I pay"]
