"""Replies, also those that a handler sends while it works: whole, in order, once, whatever fails and is tried again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from harness.fake_outbound import Postbox
from harness.turns import ADA, AT_ONCE, answered_turns, only_turn, say
from turntake import ClaimLost, ConversationKey, StoreUnavailable, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.errors import FateUnknown
from turntake.platforms.replies import Recipient
from turntake.rules.conversation import Answered, Progress, Settlement
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock


class Postcards(Postbox):
    """One line fits on each."""

    def parts(self, key: ConversationKey, text: str) -> tuple[str, ...]:
        return tuple(text.splitlines())


class Silent(Postbox):
    """Takes everything and says nothing; what it took counts as sent."""

    @property
    def sends_unknown_again(self) -> bool:
        return False

    async def send(self, to: Recipient, index: int, text: str) -> str:
        await super().send(to, index, text)
        raise FateUnknown


class Forgetful(MemoryStore):
    """Is away for the first so many attempts to settle an answer."""

    absences = 0

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        if isinstance(settlement, Answered) and self.absences:
            self.absences -= 1
            raise StoreUnavailable
        return await super().settle(claim, settlement)


async def sent_by(
    answer: Callable[[Turn], Awaitable[object]], postbox: Postbox, store: MemoryStore | None = None
) -> list[str]:
    """What reached the person in the end."""
    store = store or MemoryStore(VirtualClock())
    clock = store.clock
    assert isinstance(clock, VirtualClock)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, outbound=postbox, clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        for _ in range(40):
            await clock.advance(3_000)
        (record,) = await store.history.turns(ConversationKey.of("ada"), 2)
        assert record.status == "answered"
    return postbox.sent


@pytest.mark.parametrize(("first", "again"), [("a\nb", "c"), ("a", "b\nc"), ("a\nb\nc", "d\ne\nf\ng")])
async def test_a_reply_of_other_length_on_a_retry_moves_no_other(first: str, again: str) -> None:
    """A model seldom says the same twice: what was said first stands, whole, and the next reply is still the next."""

    async def answer(turn: Turn) -> str:
        await turn.reply(first if turn.attempt == 1 else again)
        if turn.attempt == 1:
            raise RuntimeError("after the first reply")
        await turn.reply("next")
        return "end"

    assert await sent_by(answer, Postcards()) == [*first.splitlines(), "next", "end"]


async def test_a_reply_sent_in_part_is_completed_from_its_own_text() -> None:
    postcards = Postcards()

    async def answer(turn: Turn) -> None:
        postcards.failures = 1 if turn.attempt == 1 else 0
        await turn.reply("a\nb\nc" if turn.attempt == 1 else "x\ny\nz\n")

    assert await sent_by(answer, postcards) == ["a", "b", "c"]


async def test_a_handler_that_goes_on_after_a_failed_reply_loses_neither() -> None:
    postcards = Postcards()
    postcards.failures = 1

    async def answer(turn: Turn) -> None:
        try:
            await turn.reply("first")
        except ConnectionError:
            await turn.reply("second")

    assert await sent_by(answer, postcards) == ["first", "second"]


async def test_an_empty_reply_is_not_sent() -> None:
    async def answer(turn: Turn) -> str:
        await turn.reply("")
        await turn.reply("a")
        if turn.attempt == 1:
            raise RuntimeError("after the first reply")
        return "end"

    assert await sent_by(answer, Postcards()) == ["a", "end"]


async def test_replies_of_the_release_before_are_known_too() -> None:
    """It saved each reply as it was, and no more about it."""
    store, postbox = MemoryStore(VirtualClock()), Postbox()

    async def answer(turn: Turn) -> str:
        if turn.attempt == 1:
            await store.save(turn.claim, Progress(("a", "b"), 1))
            raise RuntimeError("after the first reply")
        await turn.reply("a")
        await turn.reply("b")
        await turn.reply("c")
        return "end"

    assert await sent_by(answer, postbox, store) == ["b", "c", "end"]


async def test_what_counts_as_sent_is_not_sent_again_after_a_crash() -> None:
    """The answer left, nobody knows whether it arrived, and the store goes away before the turn is settled."""
    store = Forgetful(VirtualClock())
    store.absences = 6

    async def answer(turn: Turn) -> str:
        return "hello"

    assert await sent_by(answer, Silent(), store) == ["hello"]


async def test_a_reply_after_the_answer_is_refused() -> None:
    store, late = Forgetful(VirtualClock()), []
    store.absences = 1

    async def answer(turn: Turn) -> str:
        late.append(asyncio.ensure_future(turn.reply("late")))
        return "end"

    assert await sent_by(answer, Postbox(), store) == ["end"]
    with pytest.raises(ClaimLost):
        await late[0]


async def test_the_result_is_saved_before_it_is_sent(clock: VirtualClock, store: MemoryStore) -> None:
    """The platform is down for a moment: the saved answer is sent again, and the agent is not asked again."""
    calls, postbox = [], Postbox()
    postbox.failures = 2

    async def answer(turn: Turn) -> str:
        calls.append(turn.attempt)
        return f"answer {len(calls)}"

    turns = TurnTake(store, rules=AT_ONCE, agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await say(turns, "hello")
        await clock.advance(20_000)
    assert calls == [1]
    assert postbox.sent == ["answer 1"]


class BreaksAt(Postbox):
    """Fails once, at one place."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place: int | None = place

    async def send(self, to: Recipient, index: int, text: str) -> str:
        if index == self.place:
            self.place = None
            raise ConnectionError("the platform is down")
        return await super().send(to, index, text)


@pytest.mark.parametrize("place", range(3))
async def test_several_replies_leave_in_order_and_none_twice(
    place: int, clock: VirtualClock, store: MemoryStore
) -> None:
    """Wherever it breaks off, the next attempt goes on there: what left is noted after each reply."""
    calls, postbox = [], BreaksAt(place)

    async def answer(turn: Turn) -> list[str]:
        calls.append(turn.attempt)
        return ["one", "two", "three"]

    turns = TurnTake(store, rules=AT_ONCE, agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await say(turns, "hello")
        await clock.advance(20_000)
    assert postbox.sent == ["one", "two", "three"]
    assert calls == [1]


async def test_a_reply_that_left_is_not_sent_again_on_a_retry(clock: VirtualClock, store: MemoryStore) -> None:
    postbox = Postbox()

    async def answer(turn: Turn) -> str:
        await turn.reply("One moment…")
        if turn.attempt == 1:
            raise RuntimeError("after the first reply")
        return "Here it is."

    turns = TurnTake(store, rules=AT_ONCE, agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await say(turns, "hello")
        await clock.advance(20_000)
        record = await only_turn(turns)
    assert postbox.sent == ["One moment…", "Here it is."]
    assert record.turn is not None
    assert record.turn.progress == Progress(("One moment…", "Here it is."), 2, True)


async def test_replies_sent_at_the_same_time_have_different_numbers(tmp_path: Path) -> None:
    postbox = Postbox()

    async def answer(turn: Turn) -> str:
        await asyncio.gather(*(turn.reply(text) for text in "abc"))
        return "end"

    turns = TurnTake(f"sqlite:///{tmp_path}/t.db", rules=AT_ONCE, agent=answer, outbound=postbox)
    async with turns, answered_turns(turns, 1):
        await turns.receive("hello", conversation="ada", id="m1")
    assert postbox.places == [0, 1, 2, 3]
    assert sorted(postbox.sent) == ["a", "b", "c", "end"]


async def test_a_saved_reply_leaves_only_if_the_claim_still_holds() -> None:
    """Attempt 1 saved a reply and died; attempt 2 was taken over before it sent it."""
    clock, postbox = VirtualClock(), Postbox()
    store = MemoryStore(clock)
    postbox.failures = 1

    async def answer(turn: Turn) -> None:
        if turn.attempt == 2:
            clock.stall(1_001)
            await store.claim(1, 60_000)
        await turn.reply("hello")

    turns = TurnTake(store, rules=AT_ONCE, agent=answer, outbound=postbox, lease_ms=1_000, shutdown_ms=1, clock=clock)
    async with turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(600)
        await clock.advance(600)
        assert postbox.sent == []


async def test_sending_has_attempts_of_its_own() -> None:
    """The agent needed three attempts; a channel that is down for a moment must not cost its answer."""
    clock, postbox = VirtualClock(), Postbox()

    async def answer(turn: Turn) -> str:
        if turn.attempt < 3:
            raise RuntimeError
        postbox.failures = 1
        return "worth it"

    turns = TurnTake("memory://", rules=AT_ONCE, agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(60_000)
    assert postbox.sent == ["worth it"]


async def test_a_reply_under_way_and_the_answer_have_different_numbers(tmp_path: Path) -> None:
    postbox, under_way = Postbox(), []

    async def answer(turn: Turn) -> str:
        under_way.append(asyncio.ensure_future(turn.reply("progress")))
        await asyncio.wait(under_way, timeout=0)  # it has begun, and has not ended
        return "end"

    turns = TurnTake(f"sqlite:///{tmp_path}/t.db", rules=AT_ONCE, agent=answer, outbound=postbox)
    async with turns, answered_turns(turns, 1):
        await turns.receive("hello", conversation="ada", id="m1")
    await asyncio.gather(*under_way, return_exceptions=True)
    assert len(set(postbox.places)) == len(postbox.places)
    assert postbox.sent[-1] == "end"


async def test_a_reply_tried_again_by_the_handler_leaves_once() -> None:
    clock, postbox = VirtualClock(), Postbox()
    postbox.failures = 1

    async def answer(turn: Turn) -> None:
        try:
            await turn.reply("hello")
        except ConnectionError:
            await turn.reply("hello")

    turns = TurnTake("memory://", rules=AT_ONCE, agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(100)
    assert postbox.sent == ["hello"]


async def test_a_lone_surrogate_in_an_answer_is_replaced(tmp_path: Path) -> None:
    async def answer(turn: Turn) -> str:
        return "cut \ud83d"

    turns = TurnTake(f"sqlite:///{tmp_path}/t.db", rules=AT_ONCE, agent=answer)
    async with turns:
        async with answered_turns(turns, 1):
            await turns.receive("hi", conversation="ada", id="m1")
        (record,) = await turns.store.history.turns(ADA, 1)
    assert record.turn is not None
    assert record.turn.progress.replies == ("cut ?",)
