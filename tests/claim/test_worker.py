"""The worker: who is answered, when, how often, and what a lost claim can still do (nothing)."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harness.fake_outbound import Postbox
from turntake import ClaimLost, ConversationKey, RetryLater, Rules, StoreUnavailable, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.rules.conversation import Conversation, Progress, Settlement
from turntake.rules.records import Claim, TurnRecord
from turntake.rules.transitions import claim
from turntake.testing.clock import VirtualClock

ADA = ConversationKey.of("ada")
AT_ONCE = Rules(silence_ms=0, typing_inference_ms=0)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock)


async def say(turns: TurnTake, *texts: str, to: str = "ada") -> None:
    for text in texts:
        await turns.receive(text, conversation=to, id=f"{to}-{text}")


async def only_turn(turns: TurnTake) -> TurnRecord:
    (record,) = await turns.store.history.turns(ADA, limit=10)
    return record


async def test_a_slow_conversation_never_delays_another(clock: VirtualClock, store: MemoryStore) -> None:
    answered = []

    async def answer(turn: Turn) -> None:
        if turn.text == "slow":
            await clock.sleep(50_000)
        answered.append(turn.text)

    async with TurnTake(store, rules=AT_ONCE, agent=answer, shutdown_ms=1, clock=clock) as turns:
        await say(turns, "slow", to="ada")
        await clock.advance(10)
        await say(turns, "quick", to="bob")
        await clock.advance(10)
        assert answered == ["quick"]


async def test_no_more_handlers_run_than_allowed(clock: VirtualClock, store: MemoryStore) -> None:
    running, most = 0, 0

    async def answer(turn: Turn) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await clock.sleep(1_000)
        running -= 1

    async with TurnTake(store, rules=AT_ONCE, agent=answer, concurrency=3, clock=clock) as turns:
        for person in range(10):
            await say(turns, "hello", to=f"p{person}")
        await clock.advance(5_000)
        records = [await turns.store.history.turns(ConversationKey.of(f"p{n}"), 1) for n in range(10)]
    assert most == 3
    assert [record[0].status for record in records] == ["answered"] * 10


async def test_a_long_handler_keeps_its_claim(clock: VirtualClock, store: MemoryStore) -> None:
    """Ten leases long, and still handed over once."""
    calls = []

    async def answer(turn: Turn) -> str:
        calls.append(turn.attempt)
        await clock.sleep(10_000)
        return "done"

    async with TurnTake(store, rules=AT_ONCE, agent=answer, lease_ms=1_000, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(20_000)
        record = await only_turn(turns)
    assert calls == [1]
    assert record.status == "answered"


async def test_a_worker_that_died_is_replaced_when_its_lease_ends(clock: VirtualClock, store: MemoryStore) -> None:
    """Nobody writes again; the expired claim is simply due. Same turn, same messages, next attempt."""
    seen = []

    async def answer(turn: Turn) -> None:
        seen.append((turn.id, turn.text, turn.attempt))

    async with TurnTake(store, role="accept", rules=AT_ONCE, clock=clock) as front:
        await say(front, "hello")
    (dead,) = await store.claim(10, 5_000)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock):
        await clock.advance(4_999)
        assert seen == []
        await clock.advance(1)
    assert seen == [(dead.turn.id, "hello", 2)]


async def test_a_crashing_turn_is_not_tried_for_ever(clock: VirtualClock, store: MemoryStore) -> None:
    """Every worker that touched it died without a word: it becomes a dead letter, without one more try."""
    called = []

    async def answer(turn: Turn) -> None:
        called.append(turn.id)

    async with TurnTake(store, role="accept", rules=AT_ONCE, clock=clock) as front:
        await say(front, "poison")
    for _ in range(3):
        await store.claim(10, 1_000)
        await clock.advance(1_000)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock):
        await clock.advance(1)
        letters = await store.letters.list(10)
    assert called == []
    assert [letter.reason for letter in letters.items] == ["failed 3 times"]


async def test_a_worker_that_lost_its_claim_cannot_answer(clock: VirtualClock, store: MemoryStore) -> None:
    postbox = Postbox()

    async def answer(turn: Turn) -> str:
        store.model.conversations[ADA] = _taken_over(store, clock)
        return "too late"

    turns = TurnTake(store, rules=AT_ONCE, agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await say(turns, "hello")
        await clock.advance(10)
        record = await only_turn(turns)
    assert postbox.sent == []
    assert record.status == "answering"


async def test_a_lost_claim_cancels_its_handler(clock: VirtualClock, store: MemoryStore) -> None:
    cancelled = []

    async def answer(turn: Turn) -> None:
        try:
            await clock.sleep(60_000)
        except asyncio.CancelledError:
            cancelled.append(turn.attempt)
            raise

    async with TurnTake(store, rules=AT_ONCE, agent=answer, lease_ms=3_000, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        store.model.conversations[ADA] = _taken_over(store, clock)
        await clock.advance(2_000)
        assert cancelled == [1]


async def test_a_stalled_process_renews_its_leases_before_it_competes(clock: VirtualClock, store: MemoryStore) -> None:
    """The event loop stood still past the lease; nobody else was there, so the handler goes on, alone."""
    calls = []

    async def answer(turn: Turn) -> None:
        calls.append(turn.attempt)
        clock.stall(10_000)
        await clock.sleep(1_000)

    async with TurnTake(store, rules=AT_ONCE, agent=answer, lease_ms=3_000, clock=clock) as turns:
        await say(turns, "hello")
        await say(turns, "hi", to="bob")
        await clock.advance(0)
        await clock.advance(5_000)
        record = await only_turn(turns)
    assert record.status == "answered"
    assert calls == [1, 1]


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


async def test_several_replies_leave_in_order_and_none_twice(clock: VirtualClock, store: MemoryStore) -> None:
    postbox = Postbox()

    async def answer(turn: Turn) -> list[str]:
        postbox.failures = 1 if turn.attempt == 1 and postbox.sent == [] else 0
        return ["one", "two", "three"]

    turns = TurnTake(store, rules=AT_ONCE, agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await say(turns, "hello")
        await clock.advance(20_000)
    assert postbox.sent == ["one", "two", "three"]


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


async def test_nothing_interrupts_after_commit(clock: VirtualClock, store: MemoryStore) -> None:
    answered = []

    async def answer(turn: Turn) -> None:
        await turn.commit()
        await clock.sleep(1_000)
        answered.append(turn.text)

    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt")
    async with TurnTake(store, rules=rules, agent=answer, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(5_000)
    assert answered == ["first", "second"]


async def test_at_most_so_many_interruptions(clock: VirtualClock, store: MemoryStore) -> None:
    started = []

    async def answer(turn: Turn) -> None:
        started.append(turn.text.split("\n"))
        await clock.sleep(10_000)

    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt", max_interrupts=2)
    async with TurnTake(store, rules=rules, agent=answer, clock=clock) as turns:
        for text in "abcd":
            await say(turns, text)
            await clock.advance(100)
        await clock.advance(30_000)
    assert started == [["a"], ["a", "b"], ["a", "b", "c"], ["d"]]


async def test_a_handler_that_ignores_cancellation_changes_nothing(clock: VirtualClock, store: MemoryStore) -> None:
    postbox = Postbox()

    async def answer(turn: Turn) -> str:
        if len(turn.messages) == 1:
            try:
                await clock.sleep(10_000)
            except asyncio.CancelledError:
                return "stubborn"
        return "both"

    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt")
    turns = TurnTake(store, rules=rules, agent=answer, outbound=postbox, clock=clock)
    async with turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(5_000)
    assert postbox.sent == ["both"]


async def test_arrivals_are_shown_to_the_running_handler(clock: VirtualClock, store: MemoryStore) -> None:
    shown, answered = [], []

    async def answer(turn: Turn) -> None:
        answered.append(turn.text)
        if turn.text == "first":
            async for message in turn.arrivals():
                shown.append(message.text)
                return

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "first")
        await clock.advance(100)
        await say(turns, "second")
        await clock.advance(100)
    assert shown == ["second"]
    assert answered == ["first", "second"]


async def test_shutting_down_waits_for_handlers(clock: VirtualClock, store: MemoryStore) -> None:
    release = asyncio.Event()

    async def answer(turn: Turn) -> str:
        await release.wait()
        return "done"

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        asyncio.get_running_loop().call_soon(release.set)
    (record,) = await store.history.turns(ADA, 10)
    assert record.status == "answered"


async def test_shutting_down_hands_back_what_does_not_finish(clock: VirtualClock, store: MemoryStore) -> None:
    """The next worker takes it at once, and it cost no attempt."""
    seen = []

    async def stuck(turn: Turn) -> None:
        await asyncio.Event().wait()

    async def answer(turn: Turn) -> None:
        seen.append((turn.attempt, turn.claim.turn.failures))

    async with TurnTake(store, rules=AT_ONCE, agent=stuck, shutdown_ms=1, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock):
        await clock.advance(1)
    assert seen == [(2, 0)]


async def test_a_turn_that_is_postponed_past_its_time_becomes_a_dead_letter(
    clock: VirtualClock, store: MemoryStore
) -> None:
    async def answer(turn: Turn) -> None:
        raise RetryLater(after=10)

    rules = Rules(silence_ms=0, typing_inference_ms=0, ttl_ms=60_000)
    async with TurnTake(store, rules=rules, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(120_000)
        (letter,) = (await turns.store.letters.list(10)).items
    assert letter.reason == "expired"


async def test_a_store_that_is_away_for_a_while_is_waited_for(clock: VirtualClock) -> None:
    answered = []

    class Flaky(MemoryStore):
        failures = 3

        async def claim(self, limit: int, lease_ms: int) -> list[Claim]:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable
            return await super().claim(limit, lease_ms)

    async def answer(turn: Turn) -> None:
        answered.append(turn.text)

    async with TurnTake(Flaky(clock), rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(5_000)
    assert answered == ["hello"]


async def test_an_answer_survives_a_store_that_hiccups_while_settling(clock: VirtualClock) -> None:
    calls = []

    class Flaky(MemoryStore):
        failures = 2

        async def settle(self, claim: Claim, settlement: Settlement) -> bool:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable
            return await super().settle(claim, settlement)

    async def answer(turn: Turn) -> str:
        calls.append(turn.attempt)
        return "kept"

    async with TurnTake(Flaky(clock), rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(5_000)
        record = await only_turn(turns)
    assert calls == [1]
    assert record.turn is not None
    assert record.turn.progress.replies == ("kept",)


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


async def test_a_plain_function_runs_beside_the_event_loop() -> None:
    """Real time: a blocking handler runs in a thread, so another conversation is answered meanwhile."""
    blocked, free = threading.Event(), threading.Event()

    def answer(turn: Turn) -> str:
        if turn.text == "block":
            free.wait(10)
            blocked.set()
        else:
            free.set()
        return "done"

    async with TurnTake("memory://", rules=AT_ONCE, agent=answer) as turns:
        await say(turns, "block", to="ada")
        await say(turns, "go", to="bob")
        await asyncio.to_thread(blocked.wait, 10)
    assert blocked.is_set()


async def test_extend_and_reply_after_losing_the_claim_say_so(clock: VirtualClock, store: MemoryStore) -> None:
    refused: list[str] = []

    async def answer(turn: Turn) -> None:
        store.model.conversations[ADA] = _taken_over(store, clock)
        refused.extend([await _refusal(act) for act in (turn.extend, turn.commit, lambda: turn.reply("hi"))])

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
    assert refused == ["ClaimLost"] * 3


async def _refusal(act: Callable[[], Awaitable[Any]]) -> str:
    try:
        await act()
    except ClaimLost as error:
        return type(error).__name__
    return "allowed"


def _taken_over(store: MemoryStore, clock: VirtualClock) -> Conversation:
    return claim(store.model.conversations[ADA], ADA, 60_000, clock.now())
