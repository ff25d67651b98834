"""What waits while an answer is under way, however long that takes, and how it is answered afterwards."""

from turntake import ConversationKey, Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.testing.clock import VirtualClock

ADA = ConversationKey.of("ada")
AT_ONCE = Rules(silence_ms=0, typing_inference_ms=0)


class Promise(Sink):
    """An agent that takes every turn and promises an answer within ten minutes."""

    def __init__(self) -> None:
        self.taken: list[Turn] = []

    async def deliver(self, turn: Turn) -> Answer | Pending:
        self.taken.append(turn)
        return Pending(600_000)


async def test_a_promised_answer_keeps_the_conversation_claimed(clock: VirtualClock, store: MemoryStore) -> None:
    """That the agent took the turn is not an answer: the next turn starts once the promise was kept."""
    agent = Promise()
    async with TurnTake(store, rules=AT_ONCE, agent=agent, clock=clock) as turns:
        await turns.receive("one", conversation="ada", id="m1")
        await clock.advance(10)
        await turns.receive("two", conversation="ada", id="m2")
        await clock.advance(300_000)
        assert [turn.text for turn in agent.taken] == ["one"]
        await turns.complete(agent.taken[0].id, ("answer to one",))
        await clock.advance(10)
        assert [turn.text for turn in agent.taken] == ["one", "two"]


async def test_a_message_during_a_long_answer_costs_it_no_attempt(clock: VirtualClock, store: MemoryStore) -> None:
    """The agent takes nearly two minutes, about two leases: a follow-up waits, and neither turn counts as failed."""
    handed_over = []

    async def answer(turn: Turn) -> None:
        handed_over.append((turn.text, turn.attempt))
        await clock.sleep(119_000)

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await turns.receive("one", conversation="ada", id="m1")
        await clock.advance(10)
        await turns.receive("two", conversation="ada", id="m2")
        await clock.advance(300_000)
        records = await turns.store.history.turns(ADA, limit=10)
    assert handed_over == [("one", 1), ("two", 1)]
    assert [(record.status, record.turn and record.turn.failures) for record in records] == [("answered", 0)] * 2


async def test_a_long_wait_ends_although_nothing_else_happens(clock: VirtualClock, store: MemoryStore) -> None:
    """One message, a rule that waits a quarter of an hour, and nobody who writes in between."""
    answered_at = []

    async def answer(turn: Turn) -> None:
        answered_at.append(clock.now())

    rules = Rules(silence_ms=900_123, max_wait_ms=3_600_000)
    async with TurnTake(store, rules=rules, agent=answer, clock=clock) as turns:
        receipt = await turns.receive("hello", conversation="ada", id="m1")
        await clock.advance(3_600_000)
    assert answered_at == [receipt.due_at]
