"""One attempt at a turn: what it may ask for, how it fails, and what follows."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from harness.turns import ADA, AT_ONCE, only_turn, say, taken_over
from turntake import ClaimLost, RetryLater, Rules, StoreUnavailable, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.rules.conversation import Answered, Lease, Settlement
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock


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


async def test_a_store_that_stays_away_leaves_the_turn_to_its_lease(clock: VirtualClock) -> None:
    """It comes back a moment after the last try. The answer may have been sent, so the attempt has not failed."""

    class Away(MemoryStore):
        absences = 6

        async def settle(self, claim: Claim, settlement: Settlement) -> bool:
            if self.absences:
                self.absences -= 1
                raise StoreUnavailable
            return await super().settle(claim, settlement)

    async def answer(turn: Turn) -> str:
        return "kept"

    store = Away(clock)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(5_000)
        record = await only_turn(turns)
    assert store.absences == 0
    assert record.turn is not None
    assert (record.status, record.turn.failures, record.turn.is_leased) == ("answering", 0, True)


async def test_an_answer_that_the_store_refuses_has_failed_at_once(clock: VirtualClock) -> None:
    """It would refuse it again, so only a store that is away is asked again."""
    settlements: list[str] = []

    class Strict(MemoryStore):
        async def settle(self, claim: Claim, settlement: Settlement) -> bool:
            settlements.append(type(settlement).__name__)
            if isinstance(settlement, Answered):
                raise ValueError("too long for a row")
            return await super().settle(claim, settlement)

    async def answer(turn: Turn) -> str:
        return "a long story"

    async with TurnTake(Strict(clock), rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        record = await only_turn(turns)
    assert settlements == ["Answered", "Retry"]
    assert record.turn is not None
    assert (record.turn.failures, record.turn.error) == (1, "ValueError: too long for a row")


async def test_a_promise_is_not_cut_short_while_it_is_being_saved(clock: VirtualClock) -> None:
    """Leases are extended meanwhile, and this one may not be: its time would shrink to that of a lease."""

    class Slow(MemoryStore):
        async def extend(
            self, claims: Sequence[Claim], lease_ms: int, lease: Lease | None = None
        ) -> Sequence[bool | None]:
            kept = await super().extend(claims, lease_ms, lease)
            if lease_ms == 600_000:
                await clock.sleep(30_000)
            return kept

    class Promise(Sink):
        async def deliver(self, turn: Turn) -> Answer | Pending:
            return Pending(600_000)

    async with TurnTake(Slow(clock), rules=AT_ONCE, agent=Promise(), lease_ms=60_000, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(40_000)
        record = await only_turn(turns)
    assert record.turn is not None
    assert record.turn.due_at - clock.now() >= 500_000


async def test_extend_and_reply_after_losing_the_claim_say_so(clock: VirtualClock, store: MemoryStore) -> None:
    refused: list[str] = []

    async def answer(turn: Turn) -> None:
        store.model.conversations[ADA] = taken_over(store, clock)
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


async def test_the_text_of_a_turn_is_in_the_format_of_its_conversations_rules() -> None:
    """One tenant may like it otherwise than another; the handler may ask for any."""
    clock, texts = VirtualClock(), []

    async def answer(turn: Turn) -> None:
        texts.append((turn.text, turn.text_as("senders"), turn.chat_messages()))

    rules = {"silence_ms": 6_000, "typing_inference_ms": 6_000, "tenant": {"acme": {"text_format": "times"}}}
    async with TurnTake("memory://", rules=rules, agent=answer, clock=clock) as turns:
        for tenant in ("acme", "globex"):
            await turns.receive("Hey", conversation="ada", id="m1", sender="ada", tenant=tenant)
            await clock.advance(5_000)
            await turns.receive("you", conversation="ada", id="m2", sender="ada", tenant=tenant)
            await clock.advance(10_000)
    chat = [{"role": "user", "content": "Hey"}, {"role": "user", "content": "you"}]
    assert texts == [("[+0s] Hey\n[+5s] you", "ada: Hey\nada: you", chat), ("Hey\nyou", "ada: Hey\nada: you", chat)]
