"""Answers and failures that come from outside, for a turn that its agent promised to answer."""

import asyncio
from pathlib import Path

import pytest

from harness.fake_outbound import Postbox
from harness.turns import ADA, AT_ONCE, only_turn, say
from turntake import Arrival, ConversationKey, Message, Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.platforms.replies import Recipient
from turntake.rules.records import TurnRecord
from turntake.testing.clock import VirtualClock

AT_ONCE_TABLE = {"silence_ms": 0, "typing_inference_ms": 0}


async def test_completing_a_turn_twice_returns_the_first_result(clock: VirtualClock, store: MemoryStore) -> None:
    async def answer(turn: Turn) -> None:
        await clock.sleep(60_000)

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        turn_id = (await only_turn(turns)).id
        first = await turns.complete(turn_id, ("from outside",))
        second = await turns.complete(turn_id, ("again",))
        await clock.advance(100_000)
    assert first is not None
    assert first.status == "answered"
    assert second == first


async def test_whoever_works_on_a_turn_that_was_completed_elsewhere_is_stopped(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """At once: its slot is free for what waits."""
    cancelled = []

    async def answer(turn: Turn) -> None:
        try:
            await clock.sleep(60_000)
        except asyncio.CancelledError:
            cancelled.append(turn.text)
            raise

    async with TurnTake(store, rules=AT_ONCE, agent=answer, concurrency=1, clock=clock, shutdown_ms=0) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        await say(turns, "later", to="bob")
        await turns.complete((await only_turn(turns)).id, ("from outside",))
        await clock.advance(10)
        assert cancelled == ["hello"]
        found = await store.find(ConversationKey.of("bob"))
        assert found is not None
        assert found.conversation.state == "answering"


class SlowPostbox(Postbox):
    """Takes five seconds for each reply."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    async def send(self, to: Recipient, index: int, text: str) -> str:
        await self._clock.sleep(5_000)
        return await super().send(to, index, text)


async def test_the_first_answer_stands_though_it_has_not_left_yet(clock: VirtualClock, store: MemoryStore) -> None:
    """It is just being sent, or waits for the next attempt. A second answer is neither added nor sent instead."""
    postbox = SlowPostbox(clock)
    postbox.failures = 1
    async with TurnTake(store, rules=AT_ONCE, agent=Promise(), outbound=postbox, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        turn_id = (await only_turn(turns)).id
        for answer in ("first", "again"):
            record = await turns.complete(turn_id, (answer,))
            assert record is not None
            assert record.turn is not None
            assert (record.status, record.turn.progress.replies) == ("replying", ("first",))
            await clock.advance(10)
        await clock.advance(6_000)
        await turns.complete(turn_id, ("once more",))
        await clock.advance(20_000)
    assert postbox.sent == ["first"]


class Promise(Sink):
    """An agent that always answers 202."""

    async def deliver(self, turn: Turn) -> Answer | Pending:
        return Pending(600_000)


async def test_extending_never_cuts_a_promise_short() -> None:
    clock = VirtualClock()
    async with TurnTake("memory://", rules=AT_ONCE, agent=Promise(), clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(10)
        (record,) = await turns.store.history.turns(ADA, 1)
        extended = await turns.extend(record.id)
    assert extended is not None
    assert extended.turn is not None
    assert extended.turn.due_at > clock.now() + 500_000


async def test_reporting_a_failure_twice_counts_once() -> None:
    clock = VirtualClock()
    async with TurnTake(
        "memory://", rules=Rules(silence_ms=0, typing_inference_ms=0, max_attempts=2), agent=Promise(), clock=clock
    ) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(10)
        (record,) = await turns.store.history.turns(ADA, 1)
        for _ in range(3):
            failed = await turns.fail(record.id, "no model")
    assert failed is not None
    assert failed.turn is not None
    assert (failed.status, failed.turn.failures) == ("answering", 1)


@pytest.mark.parametrize("retry_after_ms", [0, 5_000])
async def test_whoever_reports_a_failure_may_say_when_it_is_tried_again(retry_after_ms: int) -> None:
    """At once too; but the last attempt was the last."""
    clock = VirtualClock()
    rules = AT_ONCE_TABLE | {"max_attempts": 3, "agent": {"sales": {"max_attempts": 1}}}
    async with TurnTake("memory://", rules=rules, agent=Promise(), clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await turns.accept([Arrival(ConversationKey.of("bob"), Message("m1", "hi"), "sales")])
        await clock.advance(10)
        (ada,) = await turns.store.history.turns(ADA, 1)
        (bob,) = await turns.store.history.turns(ConversationKey.of("bob"), 1)
        again = await turns.fail(ada.id, "no model", retry_after_ms)
        dead = await turns.fail(bob.id, "no model", retry_after_ms)
        assert again is not None
        assert again.turn is not None
        assert again.turn.due_at == clock.now() + retry_after_ms
    assert dead is not None
    assert dead.status == "dead"


@pytest.mark.parametrize("postbox", [None, Postbox()])
async def test_an_answer_from_outside_comes_after_what_was_said_already(postbox: Postbox | None) -> None:
    clock = VirtualClock()

    async def answer(turn: Turn) -> None:
        await turn.reply("One moment.")
        await clock.sleep(60_000)

    turns = TurnTake("memory://", rules=AT_ONCE, agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await say(turns, "hello")
        await clock.advance(10)
        await turns.complete((await only_turn(turns)).id, ("Done.",))
        await clock.advance(10)
        record = await only_turn(turns)
    assert record.turn is not None
    assert (record.status, record.turn.progress.replies) == ("answered", ("One moment.", "Done."))
    if postbox is not None:
        assert postbox.sent == ["One moment.", "Done."]
        assert record.turn.progress.ends == (), "nobody calls `turn.reply` again for an answer that is complete"


async def test_whoever_asks_for_arrivals_waits_for_as_long_as_it_says_and_for_nothing_after_the_end() -> None:
    clock = VirtualClock()
    rules = AT_ONCE_TABLE | {"agent": {"sales": {"on_busy": "steer"}}}
    async with TurnTake("memory://", rules=rules, agent=Promise(), clock=clock) as turns:
        await turns.accept([Arrival(ADA, Message("m1", "hi"), "sales")])
        await clock.advance(10)
        turn_id = (await only_turn(turns)).id
        waiting = asyncio.create_task(turns.arrivals(turn_id, 200))
        await clock.advance(200)
        assert waiting.done()
        await turns.receive("there?", conversation="ada", id="m2")
        assert [message.text for message in (await turns.absorb(turn_id)).absorbed] == ["there?"]
        await turns.complete(turn_id, ("done",))
        over = await turns.arrivals(turn_id, 600_000)
    assert over is not None
    assert (over.record.status, over.messages) == ("answered", ())


async def test_a_late_failure_leaves_the_newer_attempt_alone() -> None:
    clock = VirtualClock()
    async with TurnTake("memory://", rules=AT_ONCE, agent=Promise(), clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(10)
        (record,) = await turns.store.history.turns(ADA, 1)
        await turns.fail(record.id, "first", attempt=1)
        await clock.advance(2_000)
        late = await turns.fail(record.id, "first, again", attempt=1)
    assert late is not None
    assert late.turn is not None
    assert (late.turn.attempt, late.turn.failures, late.turn.is_leased) == (2, 1, True)


async def test_an_answer_completed_from_outside_is_sent_at_once() -> None:
    clock, postbox = VirtualClock(), Postbox()
    turns = TurnTake("memory://", rules=AT_ONCE, agent=Promise(), outbound=postbox, clock=clock)
    async with turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(10)
        (record,) = await turns.store.history.turns(ADA, 1)
        await turns.complete(record.id, ("done",))
        await clock.advance(10)
    assert postbox.sent == ["done"]


async def test_half_a_character_in_an_answer_from_outside_costs_no_answer(tmp_path: Path) -> None:
    """No store takes it, and no channel."""
    turns = TurnTake(f"sqlite:///{tmp_path}/t.db", rules=AT_ONCE, agent=Promise())
    async with turns, turns.events.watch() as seen:
        await turns.receive("hi", conversation="ada", id="m1")
        while (happening := await seen.get()).kind != "claimed":
            continue
        record = await turns.complete(happening.turn_id, ("cut \ud83d",))
    assert record is not None
    assert record.turn is not None
    assert (record.status, record.turn.progress.replies) == ("answered", ("cut ?",))


async def test_word_of_a_completion_does_not_stop_whoever_sends_its_answer(
    clock: VirtualClock, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is saved, and claimed again to be sent, before the call that completed the turn has read it back."""
    reads, read = [], store.history.turn

    async def slow_when_it_is_saved(turn_id: str) -> TurnRecord | None:
        record = await read(turn_id)
        reads.append(turn_id)
        await clock.sleep(1_000 if len(reads) == 2 else 0)
        return record

    postbox = SlowPostbox(clock)
    async with TurnTake(store, rules=AT_ONCE, agent=Promise(), outbound=postbox, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        turn_id = (await only_turn(turns)).id
        monkeypatch.setattr(store.history, "turn", slow_when_it_is_saved)
        completing = asyncio.create_task(turns.complete(turn_id, ("done",)))
        await clock.advance(10)
        await say(turns, "wake up", to="bob")
        await clock.advance(2_000)
        assert (await completing) is not None
        await clock.advance(5_000)
    assert postbox.sent == ["done"]
