"""Turns that were there when processes died: in whose company they are tried next, and who is blamed."""

import asyncio

import pytest

from harness.turns import ADA, AT_ONCE, only_turn, say
from turntake import ConversationKey, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Retry, Settlement
from turntake.rules.records import Claim
from turntake.rules.retry import ALONE_AFTER, FEW
from turntake.testing.clock import VirtualClock


class Counting:
    """An agent that takes a second, and counts how many it works on at a time."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.running: list[str] = []
        self.beside: dict[str, int] = {}
        """For each person, the most that ran at a time while they did."""

    async def __call__(self, turn: Turn) -> None:
        self.running.append(turn.conversation.conversation)
        for person in self.running:
            self.beside[person] = max(self.beside.get(person, 0), len(self.running))
        await self._clock.sleep(1_000)
        self.running.remove(turn.conversation.conversation)


async def write(store: MemoryStore, clock: VirtualClock, *people: str) -> None:
    async with TurnTake(store, role="accept", rules=AT_ONCE, clock=clock) as front:
        for person in people:
            await say(front, "hello", to=person)


async def let_lapse(store: MemoryStore, clock: VirtualClock, times: int) -> None:
    """A process takes all that is due and dies; so many times."""
    for _ in range(times):
        assert await store.claim(100, 1_000)
        await clock.advance(1_000)


async def test_one_death_changes_nothing_for_the_neighbours(clock: VirtualClock, store: MemoryStore) -> None:
    """A hundred turns that a deployment killed are not answered one by one."""
    people = [f"p{number}" for number in range(100)]
    agent = Counting(clock)
    await write(store, clock, *people)
    await let_lapse(store, clock, 1)
    async with TurnTake(store, agent=agent, shutdown_ms=1, clock=clock):
        await clock.advance(1_500)
    assert agent.beside == dict.fromkeys(people, 100)


async def test_after_two_deaths_they_are_tried_in_small_groups(clock: VirtualClock, store: MemoryStore) -> None:
    """Others, who were in no death, run beside them."""
    people = [f"p{number}" for number in range(30)]
    agent = Counting(clock)
    await write(store, clock, *people)
    await let_lapse(store, clock, ALONE_AFTER - 1)
    async with TurnTake(store, rules=AT_ONCE, agent=agent, shutdown_ms=1, clock=clock) as turns:
        await say(turns, "hello", to="new")
        await clock.advance(100)
        assert len(agent.running) == FEW + 1
        assert "new" in agent.running
        await clock.advance(20_000)
    assert max(agent.beside.values()) == FEW + 1
    assert agent.beside.keys() == {*people, "new"}


async def test_after_three_deaths_each_is_tried_alone(clock: VirtualClock, store: MemoryStore) -> None:
    """Nothing starts beside it, and what runs ends first."""
    people = [f"p{number}" for number in range(5)]
    agent = Counting(clock)
    await write(store, clock, *people)
    await let_lapse(store, clock, ALONE_AFTER)
    async with TurnTake(store, rules=AT_ONCE, agent=agent, shutdown_ms=1, clock=clock) as turns:
        for number in range(40):
            await say(turns, "hello", to=f"new{number}")
            await clock.advance(500)
    assert {person: agent.beside[person] for person in people} == dict.fromkeys(people, 1)
    assert len(agent.beside) == len(people) + 40


async def test_a_turn_that_waits_to_be_alone_hides_nobody(clock: VirtualClock, store: MemoryStore) -> None:
    """Suspects for whom there is no room are handed back for a while, untried, and others who are due come first."""
    agent = Counting(clock)
    await write(store, clock, *(f"p{number}" for number in range(20)))
    await let_lapse(store, clock, ALONE_AFTER)
    async with TurnTake(store, rules=AT_ONCE, agent=agent, concurrency=5, shutdown_ms=1, clock=clock) as turns:
        await clock.advance(10)
        await say(turns, "hello", to="new")
        await clock.advance(2_500)
        assert "new" in agent.beside
        waiting = await turns.store.find(ConversationKey.of("p19"))
    assert waiting is not None
    assert waiting.conversation.turn is not None
    assert waiting.conversation.turn.attempt <= ALONE_AFTER + 1


class CountingStore(MemoryStore):
    """Counts the turns that are handed back."""

    handed_back = 0

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        self.handed_back += isinstance(settlement, Retry)
        return await super().settle(claim, settlement)


@pytest.mark.parametrize(
    ("answer_ms", "longest_ms", "most_handed_back"), [(1, 4_500, 60), (100, 8_000, 90), (1_000, 65_000, 300)]
)
async def test_suspects_follow_each_other_as_quickly_as_they_are_answered(
    clock: VirtualClock, answer_ms: int, longest_ms: int, most_handed_back: int
) -> None:
    """Each has the process to itself, and the others have it for as long in between; nobody waits for a clock. They
    stand in line: if all came for each place, they would be handed back 450 times."""
    store = CountingStore(clock)
    answered: list[str] = []

    async def answer(turn: Turn) -> None:
        await clock.sleep(answer_ms)
        answered.append(turn.conversation.conversation)

    await write(store, clock, *(f"p{number}" for number in range(30)))
    await let_lapse(store, clock, ALONE_AFTER)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, shutdown_ms=1, clock=clock):
        await clock.advance(longest_ms)
    assert len(answered) == len(set(answered)) == 30
    assert store.handed_back <= most_handed_back


async def test_suspects_that_come_together_wait_for_what_runs_only_once(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """An answer that takes ten seconds keeps all of them waiting for ten seconds, and not each. Only the one that runs
    would be blamed for a death."""
    answered: list[str] = []
    leases: list[tuple[str, ...]] = []
    suspects = [f"p{number}" for number in range(5)]

    async def lease_of(person: str) -> str:
        found = await store.find(ConversationKey.of(person))
        assert found is not None
        return found.conversation.turn.lease if found.conversation.turn else "over"

    async def answer(turn: Turn) -> None:
        person = turn.conversation.conversation
        if person in suspects:
            leases.append(tuple([await lease_of(person) for person in suspects]))
        await clock.sleep(100 if person in suspects else 10_000)
        answered.append(person)

    await write(store, clock, *suspects)
    await let_lapse(store, clock, ALONE_AFTER)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, shutdown_ms=1, clock=clock) as turns:
        await say(turns, "hello", to="slow")
        await clock.advance(9_900)
        assert answered == []
        await clock.advance(1_000)
    assert answered == ["slow", *suspects]
    assert leases == [("over",) * n + ("alone",) + ("",) * (4 - n) for n in range(5)]


async def test_suspects_that_take_long_leave_the_process_to_others_in_between(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """Those who came together are handed back, and somebody who has just written comes first."""
    agent = Counting(clock)
    await write(store, clock, *(f"p{number}" for number in range(5)))
    await let_lapse(store, clock, ALONE_AFTER)
    async with TurnTake(store, rules=AT_ONCE, agent=agent, shutdown_ms=1, clock=clock) as turns:
        await clock.advance(1_500)
        await say(turns, "hello", to="new")
        await clock.advance(1_000)
        assert agent.running == ["new"]
        assert agent.beside == {"p0": 1, "p1": 1, "new": 1}
        await clock.advance(20_000)
    assert len(agent.beside) == 6


async def test_one_slow_suspect_does_not_put_off_those_who_are_quick(clock: VirtualClock, store: MemoryStore) -> None:
    """After its minute the others have the process for half a minute; the next ones follow at once."""
    answered: list[str] = []

    async def answer(turn: Turn) -> None:
        await clock.sleep(1 if answered else 60_000)
        answered.append(turn.conversation.conversation)

    await write(store, clock, *(f"p{number}" for number in range(30)))
    await let_lapse(store, clock, ALONE_AFTER)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, shutdown_ms=1, clock=clock):
        await clock.advance(105_000)
    assert len(answered) == 30


async def test_only_a_death_alone_counts_as_a_failure(clock: VirtualClock, store: MemoryStore) -> None:
    """Three deaths in company cost nothing; that it is alone is in the store before the handler starts."""
    seen = []

    async def stuck(turn: Turn) -> None:
        found = await store.find(ADA)
        assert found is not None
        seen.append(found.conversation.turn)
        await asyncio.Event().wait()

    await write(store, clock, "ada")
    await let_lapse(store, clock, ALONE_AFTER)
    async with TurnTake(store, agent=stuck, shutdown_ms=1, clock=clock) as turns:
        await clock.advance(10)
        record = await only_turn(turns)
    (turn,) = seen
    assert turn is not None
    assert (turn.lapses, turn.failures, turn.lease) == (ALONE_AFTER, 0, "alone")
    assert record.turn is not None
    assert record.turn.failures == 0


async def test_a_turn_that_stops_its_process_alone_is_a_dead_letter(clock: VirtualClock, store: MemoryStore) -> None:
    """Not before `max_attempts` deaths of its own, and then without one more try."""
    called = []

    async def answer(turn: Turn) -> None:
        called.append(turn.id)

    await write(store, clock, "ada")
    await let_lapse(store, clock, ALONE_AFTER)
    for _ in range(3):
        (claim,) = await store.claim(10, 1_000)
        assert await store.extend([claim], 1_000, "alone") == [True]
        await clock.advance(1_000)
    async with TurnTake(store, agent=answer, clock=clock):
        await clock.advance(1)
        (letter,) = (await store.letters.list(10)).items
    assert called == []
    assert letter.reason == "stopped its worker 3 times"
    assert "on no other" in letter.error


async def test_a_handler_that_never_ends_does_not_keep_a_suspect_waiting_for_ever(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """It waits for the longest time that a handler may take; then it is tried all the same, and not as one alone."""
    tried = []

    async def answer(turn: Turn) -> None:
        if turn.text == "stubborn":
            for _ in range(2):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    continue
        found = await store.find(turn.conversation)
        assert found is not None
        assert found.conversation.turn is not None
        tried.append((turn.text, found.conversation.turn.lease))

    await write(store, clock, "ada")
    await let_lapse(store, clock, ALONE_AFTER - 1)
    (held,) = await store.claim(1, 5_000)
    assert held.turn.lapses == ALONE_AFTER - 1
    async with TurnTake(store, rules=AT_ONCE, agent=answer, handler_ms=30_000, shutdown_ms=1, clock=clock) as turns:
        await say(turns, "stubborn", to="bob")
        await clock.advance(20_000)
        assert tried == []
        await clock.advance(20_000)
        assert tried == [("hello", "")]


class Unsettling(MemoryStore):
    """Away whenever the first person's turn is to be settled, or somebody else's claim by then."""

    how = "away"

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        if claim.key == ADA:
            if self.how == "away":
                raise StoreUnavailable("no connection")
            return False
        return await super().settle(claim, settlement)


@pytest.mark.parametrize("how", ["away", "lost"])
async def test_others_go_on_after_a_turn_that_was_alone_and_could_not_be_settled(how: str, clock: VirtualClock) -> None:
    """However the one that had the process to itself ended, the process is everybody's again."""
    store, agent = Unsettling(clock), Counting(clock)
    store.how = how
    await write(store, clock, ADA.conversation)
    await let_lapse(store, clock, ALONE_AFTER)
    async with TurnTake(store, rules=AT_ONCE, agent=agent, shutdown_ms=1, clock=clock) as turns:
        await clock.advance(100)
        assert agent.running == [ADA.conversation]
        await say(turns, "hello", to="new")
        await clock.advance(10_000)
    assert "new" in agent.beside
