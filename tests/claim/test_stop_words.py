"""Words that people say to whoever answers: they end the wait, ask for a moment, or call everything off."""

import asyncio

from harness.fake_outbound import Postbox
from harness.turns import ADA, say
from turntake import Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.observe.observer import Observer
from turntake.observe.savings import SavingsMeter
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.rules import PRESETS
from turntake.testing.clock import VirtualClock

WORDS = Rules(flush_words=("that's all",), hold_words=("one moment",), stop_words=("@en",))


async def test_stop_reaches_the_agent_at_once_and_nothing_else_does(clock: VirtualClock, store: MemoryStore) -> None:
    """The running answer is cancelled, what waited is dropped, and "stop" is handed over with its reason."""
    seen, cancelled, postbox = [], [], Postbox()

    async def answer(turn: Turn) -> str:
        seen.append((turn.text, turn.reason))
        if turn.reason == "stop word":
            return "I stopped."
        try:
            await clock.sleep(60_000)
        except asyncio.CancelledError:
            cancelled.append(turn.text)
            raise
        return "a long answer"

    async with TurnTake(store, rules=WORDS, agent=answer, outbound=postbox, clock=clock) as turns:
        await say(turns, "write a poem")
        await clock.advance(1_000)
        await say(turns, "a long one")
        receipt = await turns.receive("STOP!", conversation=ADA.conversation, id="stop")
        await clock.advance(60_000)
        past = await turns.store.history.turns(ADA, 10)
    assert (receipt.reason, receipt.due_at, receipt.messages) == ("stop word", clock.now() - 60_000, 1)
    assert seen == [("write a poem", "silence"), ("STOP!", "stop word")]
    assert cancelled == ["write a poem"]
    assert postbox.sent == ["I stopped."]
    assert sorted((record.status, record.messages[0].text) for record in past) == [
        ("answered", "STOP!"),
        ("stopped", "a long one"),
        ("stopped", "write a poem"),
    ]


async def test_an_answer_whose_first_reply_left_is_finished_before_stop_is_heard(
    clock: VirtualClock, store: MemoryStore
) -> None:
    postbox, heard = Postbox(), []

    async def answer(turn: Turn) -> str:
        if turn.reason == "stop word":
            return "I stopped."
        await turn.reply("one")
        async for message in turn.arrivals():
            heard.append(message.text)
            break
        return "two"

    async with TurnTake(store, rules=WORDS, agent=answer, outbound=postbox, clock=clock) as turns:
        await say(turns, "count")
        await clock.advance(1_000)
        await say(turns, "stop")
        await clock.advance(1_000)
    assert heard == ["stop"]
    assert postbox.sent == ["one", "two", "I stopped."]


class Steps(Observer):
    """Notes what a stop word does, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def received(self, at: int, key: ConversationKey, message: Message, appended: object) -> None:
        self.seen.append(("received", message.text))

    def interrupted(self, at: int, key: ConversationKey, turn_id: str) -> None:
        self.seen.append(("interrupted", turn_id))

    def stopped(self, at: int, key: ConversationKey, turn_id: str) -> None:
        self.seen.append(("stopped", turn_id))


async def test_whatever_a_stop_word_ends_is_told(clock: VirtualClock, store: MemoryStore) -> None:
    """The turn under way, which is one interrupted answer, and what waited; each under the id it is listed by."""
    steps, savings = Steps(), SavingsMeter()

    async def answer(turn: Turn) -> None:
        await clock.sleep(60_000)

    turns = TurnTake(store, rules=WORDS, agent=answer, clock=clock, observers=[steps, savings])
    async with turns:
        await say(turns, "write a poem")
        await clock.advance(1_000)
        await say(turns, "a long one")
        await say(turns, "stop")
        past = {record.messages[0].text: record.id for record in await turns.store.history.turns(ADA, 10)}
    poem, waited = past["write a poem"], past["a long one"]
    assert steps.seen[2:] == [("interrupted", poem), ("stopped", poem), ("stopped", waited), ("received", "stop")]
    assert savings.sums["default"].interrupted == 1


async def test_a_buffer_that_is_emptied_by_a_stop_word_is_told_without_an_interruption(
    clock: VirtualClock, store: MemoryStore
) -> None:
    steps = Steps()
    async with TurnTake(store, role="accept", rules=WORDS, clock=clock, observers=[steps]) as turns:
        await say(turns, "a")
        await say(turns, "stop")
    assert [name for name, _ in steps.seen] == ["received", "stopped", "received"]


async def test_stop_works_where_every_message_is_its_own_turn(clock: VirtualClock, store: MemoryStore) -> None:
    seen = []

    async def answer(turn: Turn) -> None:
        seen.append(turn.text)
        await clock.sleep(10_000)

    rules = Rules(enabled=False, stop_words=("stop",))
    async with TurnTake(store, rules=rules, agent=answer, clock=clock) as turns:
        for text in ("a", "b", "c", "stop"):
            await say(turns, text)
            await clock.advance(100)
        await clock.advance(60_000)
    assert seen == ["a", "stop"]


async def test_that_is_all_is_answered_at_once_and_one_moment_is_waited_for(
    clock: VirtualClock, store: MemoryStore
) -> None:
    seen = []

    async def answer(turn: Turn) -> None:
        seen.append((turn.text, turn.reason))

    async with TurnTake(store, rules=WORDS, agent=answer, clock=clock) as turns:
        await say(turns, "my number? One moment!")
        await clock.advance(14_000)
        assert seen == []
        await say(turns, "4711. That\u2019s all.")
        await clock.advance(1)
        assert seen == [("my number? One moment!\n4711. That\u2019s all.", "flush word")]
        await say(turns, "one moment")
        await clock.advance(15_000)
    assert seen[1:] == [("one moment", "hold word")]


async def test_nobody_has_words_unless_they_are_set(clock: VirtualClock, store: MemoryStore) -> None:
    """A word that nobody listed is a word: also with every preset."""
    assert not any(rules.has_words for rules in (Rules(), *PRESETS.values()))
    async with TurnTake(store, role="accept", clock=clock) as turns:
        texts = ("stop", "one moment", "that's all")
        receipts = [await turns.receive(text, conversation="ada", id=text) for text in texts]
    assert [receipt.reason for receipt in receipts] == ["silence", "typing", "typing"]


async def test_words_belong_to_whom_they_are_set_for(clock: VirtualClock, store: MemoryStore) -> None:
    rules = {"tenant": {"acme": {"stop_words": ["@de"]}}, "agent": {"sales": {"flush_words": ["fertig"]}}}
    async with TurnTake(store, role="accept", rules=rules, clock=clock) as turns:
        for tenant, text, reason in (
            ("acme", "Stopp", "stop word"),
            ("acme", "stop", "stop word"),
            ("zeta", "Stopp", "silence"),
        ):
            receipt = await turns.receive(text, conversation=reason + text, id=text, tenant=tenant)
            assert receipt.reason == reason
