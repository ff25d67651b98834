"""An answer that is ready while something newer waits: sent, given anew, or discarded, by `on_stale`."""

import pytest

from harness.fake_outbound import Postbox
from harness.turns import ADA, say
from turntake import ClaimLost, Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.deliver.handler import Handler
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.observe.observer import Observer
from turntake.rules.key import ConversationKey
from turntake.rules.rules import OnStale
from turntake.testing.clock import VirtualClock


class Ends(Observer):
    """Notes the ends of turns that were not answered."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def interrupted(self, at: int, key: ConversationKey, turn_id: str) -> None:
        self.seen.append("interrupted")

    def discarded(self, at: int, key: ConversationKey, turn_id: str) -> None:
        self.seen.append("discarded")

    def lost(self, at: int, claim: object) -> None:
        self.seen.append("lost")


def stale(on_stale: OnStale, max_interrupts: int = 3) -> Rules:
    return Rules(silence_ms=100, typing_inference_ms=0, on_stale=on_stale, max_interrupts=max_interrupts)


def repeating(clock: VirtualClock) -> Handler:
    """Thinks for a second, then says what it was asked."""

    async def repeat(turn: Turn) -> str:
        await clock.sleep(1_000)
        return turn.text

    return repeat


@pytest.mark.parametrize(
    ("on_stale", "sent", "ends"),
    [
        ("send", ["first", "second"], []),
        ("regenerate", ["first\nsecond"], ["interrupted"]),
        ("discard", ["second"], ["discarded"]),
    ],
)
@pytest.mark.parametrize("is_sent", [True, False])
async def test_an_answer_to_less_than_was_said(
    clock: VirtualClock, store: MemoryStore, on_stale: OnStale, sent: list[str], ends: list[str], is_sent: bool
) -> None:
    """Whether replies leave for a platform or stay with their turns."""
    postbox, seen = Postbox(), Ends()
    outbound = postbox if is_sent else None
    turns = TurnTake(
        store, rules=stale(on_stale), agent=repeating(clock), outbound=outbound, clock=clock, observers=[seen]
    )
    async with turns:
        await say(turns, "first")
        await clock.advance(600)
        await say(turns, "second")
        await clock.advance(10_000)
        answered = [r for r in await turns.store.history.turns(ADA, 10) if r.status == "answered"]
    replies = [reply for record in reversed(answered) if record.turn for reply in record.turn.progress.replies]
    assert replies == sent
    assert postbox.sent == (sent if is_sent else [])
    assert seen.seen == ends


async def test_somebody_who_never_stops_writing_is_answered(clock: VirtualClock, store: MemoryStore) -> None:
    postbox = Postbox()
    turns = TurnTake(store, rules=stale("regenerate", 2), agent=repeating(clock), outbound=postbox, clock=clock)
    async with turns:
        for number in range(12):
            await say(turns, f"m{number}")
            await clock.advance(500)
        await clock.advance(10_000)
    assert "\n".join(postbox.sent).split("\n") == [f"m{number}" for number in range(12)]
    assert len(postbox.sent) == 3


async def test_a_reply_during_the_work_is_the_first_that_can_be_stale(clock: VirtualClock, store: MemoryStore) -> None:
    """It raises ClaimLost, as after an interruption; once one left, the rest follows."""
    postbox, lost = Postbox(), []

    async def answer(turn: Turn) -> str:
        await clock.sleep(1_000)
        try:
            await turn.reply(f"on it: {turn.text}")
        except ClaimLost:
            lost.append(turn.text)
            raise
        await clock.sleep(1_000)
        return "done"

    turns = TurnTake(store, rules=stale("regenerate"), agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await say(turns, "first")
        await clock.advance(600)
        await say(turns, "second")
        await clock.advance(2_000)
        await say(turns, "third")
        await clock.advance(10_000)
    assert lost == ["first"]
    assert postbox.sent == ["on it: first\nsecond", "done", "on it: third", "done"]


class Later(Sink):
    """An agent that completes its turns through the API."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def deliver(self, turn: Turn) -> Answer | Pending:
        self.ids.append(turn.id)
        return Pending(60_000)


async def test_an_answer_that_comes_through_the_api_may_be_stale(clock: VirtualClock, store: MemoryStore) -> None:
    postbox, seen, agent = Postbox(), Ends(), Later()
    rules = stale("regenerate")
    turns = TurnTake(store, rules=rules, agent=agent, outbound=postbox, clock=clock, observers=[seen])
    async with turns:
        await say(turns, "first")
        await clock.advance(200)
        await say(turns, "second")
        await clock.advance(1_000)
        record = await turns.complete(agent.ids[0], ["to the first"])
        assert record is not None
        assert record.status == "interrupted"
        await clock.advance(10)
        await turns.complete(agent.ids[1], ["to both"])
        await clock.advance(100)
    assert postbox.sent == ["to both"]
    assert seen.seen == ["interrupted"]
