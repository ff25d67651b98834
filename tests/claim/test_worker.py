"""The worker: who is answered, when, how often, and what a lost claim can still do (nothing)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from harness.fake_outbound import Postbox
from harness.turns import ADA, AT_ONCE, answered_turns, only_turn, say, silent, taken_over
from turntake import ConversationKey, StoreUnavailable, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.buffer.sqlite.schema import connect
from turntake.buffer.sqlite.store import SqliteStore
from turntake.clock import SystemClock
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock


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


async def test_a_long_handler_keeps_its_claim_beside_an_idle_worker(clock: VirtualClock, store: MemoryStore) -> None:
    """The other one looks for what is due all the time; that the first is alive is all that keeps it away."""
    calls = []

    async def answer(turn: Turn) -> str:
        calls.append(turn.attempt)
        await clock.sleep(10_000)
        return "done"

    options = {"rules": AT_ONCE, "agent": answer, "lease_ms": 1_000, "clock": clock}
    async with TurnTake(store, **options) as turns, TurnTake(store, **options):  # type: ignore[arg-type]
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
        store.model.conversations[ADA] = taken_over(store, clock)
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
        store.model.conversations[ADA] = taken_over(store, clock)
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


async def test_a_worker_that_is_in_time_extends_no_leases_to_claim(clock: VirtualClock) -> None:
    """That would be one more call to the store for each claim."""
    extended: list[int] = []

    class Counting(MemoryStore):
        async def extend(self, claims: Sequence[Claim], lease_ms: int) -> list[bool]:
            extended.append(len(claims))
            return await super().extend(claims, lease_ms)

    async def answer(turn: Turn) -> None:
        await clock.sleep(50_000)

    store = Counting(clock)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, lease_ms=60_000, shutdown_ms=1, clock=clock) as turns:
        for person in range(10):
            await say(turns, "hello", to=f"p{person}")
            await clock.advance(1_000)
        assert extended == []
        await clock.advance(10_000)
        assert extended == [10]


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
        async with TurnTake(store, rules=AT_ONCE, agent=silent, shutdown_ms=5_000) as turns:
            await turns.receive("hello", conversation="ada", id="m1")
            await claiming.wait()
        await store.history.forget(0)  # a write after all others, so that nothing is still on its way
        snapshot = await store.find(ADA)
    assert snapshot is not None
    assert snapshot.conversation.turn is None or not snapshot.conversation.turn.is_leased


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
