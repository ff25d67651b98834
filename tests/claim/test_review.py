"""What a second pair of eyes found: each was broken once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path

import pytest

from harness.fake_outbound import Postbox
from turntake import (
    Arrival,
    ConversationKey,
    InvalidMessage,
    Message,
    RetryLater,
    Rules,
    StoreUnavailable,
    Turn,
    TurnTake,
)
from turntake.buffer.memory import MemoryStore
from turntake.buffer.sqlite.schema import connect
from turntake.buffer.sqlite.store import SqliteStore
from turntake.clock import SystemClock
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.rules.conversation import Touch
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock

ADA = ConversationKey.of("ada")
AT_ONCE = Rules(silence_ms=0, typing_inference_ms=0)


class Promise(Sink):
    """An agent that always answers 202."""

    async def deliver(self, turn: Turn) -> Answer | Pending:
        return Pending(600_000)


async def _silent(turn: Turn) -> None:
    return None


@asynccontextmanager
async def answered_turns(turns: TurnTake, count: int) -> AsyncIterator[None]:
    """Leaves once so many turns were answered."""
    async with turns.events.watch() as seen:
        yield
        while count:
            count -= (await seen.get()).kind in ("answered", "dead-lettered")


async def test_a_key_built_by_hand_is_checked() -> None:
    """An unnormalised key would be stored under a spelling that nobody can read back."""
    async with TurnTake("memory://", agent=_silent) as turns:
        with pytest.raises(InvalidMessage):
            await turns.accept([Arrival(ConversationKey("Jose\u0301"), Message("m1", "hi"))])


async def test_an_unexpected_error_does_not_end_the_worker() -> None:
    clock, answered = VirtualClock(), []

    class Broken(MemoryStore):
        errors = 2

        async def claim(self, limit: int, lease_ms: int) -> list[Claim]:
            if self.errors:
                self.errors -= 1
                raise ValueError("a row that cannot be read")
            return await super().claim(limit, lease_ms)

    async def answer(turn: Turn) -> None:
        answered.append(turn.text)

    async with TurnTake(Broken(clock), rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await turns.receive("hello", conversation="ada", id="m1")
        await clock.advance(5_000)
    assert answered == ["hello"]


async def test_stopping_while_a_claim_is_on_its_way_hands_it_back(tmp_path: Path) -> None:
    """The claim commits after the order to stop; the next process must not wait for its lease."""
    claiming = asyncio.Event()

    class Slow(SqliteStore):
        async def claim(self, limit: int, lease_ms: int) -> list[Claim]:
            claiming.set()
            return await super().claim(limit, lease_ms)

    async with Slow(str(tmp_path / "t.db"), SystemClock()) as store:
        async with TurnTake(store, rules=AT_ONCE, agent=_silent, shutdown_ms=5_000) as turns:
            await turns.receive("hello", conversation="ada", id="m1")
            await claiming.wait()
        await store.history.forget(0)  # a write after all others, so that nothing is still on its way
        snapshot = await store.find(ADA)
    assert snapshot is not None
    assert snapshot.conversation.turn is None or not snapshot.conversation.turn.is_leased


async def test_replies_at_the_same_time_each_have_their_own_place(tmp_path: Path) -> None:
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


async def test_a_handler_that_asked_for_more_time_keeps_it() -> None:
    clock = VirtualClock()
    left: list[int] = []

    async def answer(turn: Turn) -> None:
        await turn.extend(600_000)
        await clock.sleep(60_000)
        (record,) = await turns.store.history.turns(ADA, 1)
        assert record.turn is not None
        left.append(record.turn.due_at - clock.now())

    async with TurnTake("memory://", rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(70_000)
    assert left == [540_000]


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


async def test_a_clock_set_back_between_two_runs_stalls_and_reorders_nothing(tmp_path: Path) -> None:
    """What was seen once is the least the time can be."""
    before, after = VirtualClock(2_000_000_000_000), VirtualClock(2_000_000_000_000 - 3_600_000)
    async with TurnTake(f"sqlite:///{tmp_path}/t.db", role="accept", clock=before) as turns:
        await turns.receive("first", conversation="ada", id="m1")
    async with TurnTake(f"sqlite:///{tmp_path}/t.db", role="accept", clock=after) as turns:
        receipt = await turns.receive("second", conversation="ada", id="m2")
        snapshot = await turns.store.find(ADA)
    assert receipt.due_at is not None
    assert receipt.due_at <= before.now() + 30_000
    assert after.now() >= before.now()
    assert snapshot is not None
    assert [message.text for message in snapshot.messages] == ["first", "second"]


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


async def test_a_retried_letter_gets_its_time_anew() -> None:
    """An hour after it died, the agent may still ask for a moment."""
    clock, calls = VirtualClock(), []

    async def answer(turn: Turn) -> str:
        calls.append(turn.attempt)
        if len(calls) <= 4:
            raise RetryLater(1) if len(calls) == 4 else RuntimeError
        return "at last"

    async with TurnTake("memory://", rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(7_200_000)
        (letter,) = (await turns.store.letters.list(5)).items
        await turns.retry_letter(letter.id)
        await clock.advance(5_000)
        newest = (await turns.store.history.turns(ADA, 5))[0]
    assert newest.status == "answered"


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


async def test_a_handler_cancelled_by_what_it_awaits_has_failed() -> None:
    """Nobody cancelled the turn: it is tried again after a pause, not after a lease."""
    clock, attempts = VirtualClock(), []

    async def answer(turn: Turn) -> None:
        attempts.append(clock.now())
        if len(attempts) == 1:
            raise asyncio.CancelledError

    async with TurnTake("memory://", rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(5_000)
    assert len(attempts) == 2


async def test_an_agent_cannot_be_called_in_a_circle() -> None:
    clock, calls = VirtualClock(), []

    async def answer(turn: Turn) -> None:
        calls.append(turn.attempt)
        raise RetryLater(0)

    async with TurnTake("memory://", rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(5_000)
    assert len(calls) <= 11


async def test_a_stop_is_not_held_up_by_a_stubborn_handler() -> None:
    """It is handed back although it never ends; whoever comes next may answer."""
    clock = VirtualClock()
    store, let_go = MemoryStore(clock), asyncio.Event()

    async def stubborn(turn: Turn) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async with TurnTake(store, rules=AT_ONCE, agent=stubborn, shutdown_ms=1, clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(1)
    conversation = store.model.conversations[ADA]
    let_go.set()
    assert conversation.turn is not None
    assert not conversation.turn.is_leased


async def test_arrivals_know_their_place() -> None:
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


async def test_a_turn_is_claimed_until_its_answer_is_in() -> None:
    """The agent works for a long time; a second turn of the conversation does not start beside it."""
    clock, running, most = VirtualClock(), 0, 0

    async def answer(turn: Turn) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await clock.sleep(20_000)
        running -= 1

    async with TurnTake("memory://", rules=AT_ONCE, agent=answer, lease_ms=1_000, clock=clock) as turns:
        await turns.receive("one", conversation="ada", id="m1")
        await clock.advance(2_000)
        await turns.receive("two", conversation="ada", id="m2")
        await clock.advance(60_000)
    assert most == 1


async def test_a_hand_over_that_was_refused_removes_nothing() -> None:
    """The agent's refusal is an error, not an answer: the messages stay until one attempt succeeds."""
    clock, seen = VirtualClock(), []

    class Refusing(Sink):
        async def deliver(self, turn: Turn) -> Answer | Pending:
            seen.append([message.id for message in turn.messages])
            if len(seen) == 1:
                raise ConnectionError("one entry failed")
            return Answer()

    async with TurnTake("memory://", rules=AT_ONCE, agent=Refusing(), clock=clock) as turns:
        await turns.receive("one", conversation="ada", id="m1")
        await clock.advance(5_000)
    assert seen == [["m1"], ["m1"]]


async def test_asking_for_a_moment_keeps_the_lease() -> None:
    """`extend` with less than a lease does not end the claim early: nobody else gets the turn meanwhile."""
    clock, attempts = VirtualClock(), []

    async def answer(turn: Turn) -> None:
        attempts.append(turn.attempt)
        await turn.extend(1_000)
        await clock.sleep(100_000)

    async with TurnTake("memory://", rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(120_000)
    assert attempts == [1]


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


async def test_a_reply_left_under_way_and_the_answer_have_different_places(tmp_path: Path) -> None:
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


async def test_half_a_character_costs_no_answer(tmp_path: Path) -> None:
    async def answer(turn: Turn) -> str:
        return "cut \ud83d"

    turns = TurnTake(f"sqlite:///{tmp_path}/t.db", rules=AT_ONCE, agent=answer)
    async with turns:
        async with answered_turns(turns, 1):
            await turns.receive("hi", conversation="ada", id="m1")
        (record,) = await turns.store.history.turns(ADA, 1)
    assert record.turn is not None
    assert record.turn.progress.replies == ("cut ?",)


async def test_a_row_that_cannot_be_read_stops_nobody_else(tmp_path: Path) -> None:
    """Even with a single place to work in."""
    answered = []

    async def answer(turn: Turn) -> None:
        answered.append(turn.text)

    path = str(tmp_path / "t.db")
    async with TurnTake(f"sqlite:///{path}", role="accept", rules=AT_ONCE) as turns:
        await turns.receive("broken", conversation="ada", id="m1")
    connection = connect(path)
    connection.execute("UPDATE conversations SET body = x'00'")
    connection.close()
    turns = TurnTake(f"sqlite:///{path}", rules=AT_ONCE, agent=answer, concurrency=1)
    async with turns, answered_turns(turns, 1):
        await turns.receive("fine", conversation="bob", id="m1")
    assert answered == ["fine"]


async def test_a_plain_handler_sees_the_context_it_was_called_in() -> None:
    seen: list[str] = []
    tenant: ContextVar[str] = ContextVar("tenant", default="lost")
    tenant.set("kept")

    def answer(turn: Turn) -> None:
        seen.append(tenant.get())

    turns = TurnTake("memory://", rules=AT_ONCE, agent=answer)
    async with turns, answered_turns(turns, 1):
        await turns.receive("hi", conversation="ada", id="m1")
    assert seen == ["kept"]


async def test_a_write_while_the_store_closes_is_refused(tmp_path: Path) -> None:
    """The thread that commits has ended: whoever comes now is told, and does not wait for ever."""
    async with SqliteStore(str(tmp_path / "t.db"), SystemClock()) as store:
        await store._writer.close()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(store.append([]), timeout=5)
