"""The worker: who is answered, how many at once, and what does not end it."""

from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from harness.turns import ADA, AT_ONCE, answered_turns, only_turn, say
from turntake import ConversationKey, Rules, StoreUnavailable, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.buffer.sqlite.schema import connect
from turntake.rules.conversation import Touch
from turntake.rules.fairness import ClaimOrder
from turntake.rules.records import Claim
from turntake.rules.watch import JOIN_MS
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


async def test_what_is_flushed_while_the_worker_sleeps_is_answered_at_once(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """And not when it looks again by itself."""
    answered = []

    async def answer(turn: Turn) -> None:
        answered.append(turn.text)

    async with TurnTake(store, rules=Rules(silence_ms=20_000), agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(100)
        await turns.touch(ADA, Touch("flush"))
        await clock.advance(1)
        assert answered == ["hello"]


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


async def test_a_store_that_is_away_for_a_while_is_waited_for(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    answered = []

    class Flaky(MemoryStore):
        failures = 3

        async def claim(self, limit: int, lease_ms: int, order: ClaimOrder | None = None) -> list[Claim]:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("no connection")
            return await super().claim(limit, lease_ms, order)

    async def answer(turn: Turn) -> None:
        answered.append(turn.text)

    async with TurnTake(Flaky(clock), rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(5_000)
    assert answered == ["hello"]
    assert [record.message for record in caplog.records] == ["Nothing could be claimed", "Turns can be claimed again"]
    assert vars(caplog.records[0])["reason"] == "no connection"


async def test_nothing_is_claimed_before_what_all_processes_share_was_read(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first attempt would have no token, and the next one would have one: a turn never changes."""
    tokens: list[str] = []

    async def answer(turn: Turn) -> None:
        tokens.append(turn.completion_token)

    store = MemoryStore(clock)
    monkeypatch.setattr(store.documents, "versions", AsyncMock(side_effect=StoreUnavailable("this node hangs")))
    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(60_000)
        assert tokens == []
        monkeypatch.undo()
        await clock.advance(2_000)
        assert tokens == [turns.keys.token_for((await only_turn(turns)).id)]
    assert tokens[0]


async def test_an_unexpected_error_does_not_end_the_worker() -> None:
    clock, answered = VirtualClock(), []

    class Broken(MemoryStore):
        errors = 2

        async def claim(self, limit: int, lease_ms: int, order: ClaimOrder | None = None) -> list[Claim]:
            if self.errors:
                self.errors -= 1
                raise ValueError("a row that cannot be read")
            return await super().claim(limit, lease_ms, order)

    async def answer(turn: Turn) -> None:
        answered.append(turn.text)

    async with TurnTake(Broken(clock), rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await turns.receive("hello", conversation="ada", id="m1")
        await clock.advance(5_000)
    assert answered == ["hello"]


async def test_a_worker_says_that_it_lives_whatever_the_store_says_to_that(clock: VirtualClock) -> None:
    """Whoever fell silent for longer loses its share of the deadlines; and none of it stands in the way of its end."""
    joined_at: list[int] = []

    class Away(MemoryStore):
        async def join(self, worker: str) -> None:
            joined_at.append(clock.now())
            raise StoreUnavailable("no connection")

        async def leave(self, worker: str) -> None:
            raise StoreUnavailable("no connection")

    async def answer(turn: Turn) -> None: ...

    start = clock.now()
    async with TurnTake(Away(clock), rules=AT_ONCE, agent=answer, clock=clock):
        await clock.advance(5_000)
    assert joined_at == [*range(start, start + 5_001, JOIN_MS)]


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
    connection.execute("UPDATE conversations SET body = x'00' WHERE part = 0")
    connection.close()
    turns = TurnTake(f"sqlite:///{path}", rules=AT_ONCE, agent=answer, concurrency=1)
    async with turns, answered_turns(turns, 1):
        await turns.receive("fine", conversation="bob", id="m1")
    assert answered == ["fine"]
