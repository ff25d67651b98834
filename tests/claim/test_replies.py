"""Replies that a handler sends while it works: each whole, in order, once, whatever fails and is tried again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from harness.fake_outbound import Postbox
from turntake import ConversationKey, Rules, StoreUnavailable, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.errors import ClaimLost, FateUnknown
from turntake.platforms.replies import Recipient
from turntake.rules.conversation import Answered, Progress, Settlement
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock

AT_ONCE = Rules(silence_ms=0, typing_inference_ms=0)


class Postcards(Postbox):
    """One line fits on each."""

    def parts(self, key: ConversationKey, text: str) -> tuple[str, ...]:
        return tuple(text.splitlines())


class Silent(Postbox):
    """Takes everything and says nothing; what it took counts as sent."""

    @property
    def sends_unknown_again(self) -> bool:
        return False

    async def send(self, to: Recipient, index: int, text: str) -> None:
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


async def test_a_reply_cut_short_is_ended_in_its_own_words() -> None:
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


async def test_a_reply_without_words_is_none() -> None:
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
