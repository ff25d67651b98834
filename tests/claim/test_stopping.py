"""Stopping a worker: what is under way may finish, and the rest is handed back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.fake_outbound import Postbox
from harness.turns import ADA, AT_ONCE, only_turn, say, silent
from turntake import Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.buffer.store import Hint
from turntake.claim import worker
from turntake.clock import SystemClock
from turntake.platforms.replies import Recipient
from turntake.rules.fairness import ClaimOrder
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock


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


async def test_stopping_while_a_claim_is_on_its_way_hands_it_back(tmp_path: Path) -> None:
    """The claim commits after the order to stop; the next process must not wait for its lease."""
    claiming = asyncio.Event()

    class Slow(SqliteStore):
        async def claim(self, limit: int, lease_ms: int, order: ClaimOrder | None = None) -> list[Claim]:
            claiming.set()
            return await super().claim(limit, lease_ms, order)

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


async def test_who_hurries_a_stop_has_the_rest_handed_back_at_once(clock: VirtualClock, store: MemoryStore) -> None:
    """However long handlers were to be waited for."""
    begun = asyncio.Event()

    async def stuck(turn: Turn) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with TurnTake(store, rules=AT_ONCE, agent=stuck, shutdown_ms=600_000, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        await begun.wait()
        assert turns.is_answering
        turns.drain()
        turns.hurry()
    (record,) = await store.history.turns(ADA, 10)
    assert record.turn is not None
    assert (record.status, record.turn.is_leased, record.turn.failures) == ("answering", False, 0)


class Slow(Postbox):
    """Takes seven seconds for each reply."""

    def __init__(self, clock: VirtualClock, takes_ms: int, is_double_safe: bool = False) -> None:
        super().__init__()
        self._clock = clock
        self._takes_ms = takes_ms
        self._is_double_safe = is_double_safe

    @property
    def sends_unknown_again(self) -> bool:
        return self._is_double_safe

    async def send(self, to: Recipient, index: int, text: str) -> str:
        self.places.append(index)
        await self._clock.sleep(self._takes_ms)
        self.sent.append(text)
        return ""


async def stopped_while_sending(store: MemoryStore, clock: VirtualClock, postbox: Postbox, in_ms: int) -> None:
    """A stop in the middle of the first reply; the clock goes on meanwhile."""

    async def answer(turn: Turn) -> list[str]:
        return ["one", "two"]

    turns = TurnTake(store, rules=AT_ONCE, agent=answer, outbound=postbox, shutdown_ms=1, clock=clock)
    async with turns:
        await say(turns, "hello")
        await clock.advance(1_000)
        turns.drain()
        while store.model.conversations[ADA].turn and store.model.conversations[ADA].turn.is_leased:  # type: ignore[union-attr]
            await clock.advance(in_ms)


async def test_a_reply_that_is_with_the_platform_may_end_before_a_stop(clock: VirtualClock, store: MemoryStore) -> None:
    """It is noted as sent, and whoever comes next sends the one after it."""
    first, second = Slow(clock, 7_000), Postbox()
    await stopped_while_sending(store, clock, first, 500)
    async with TurnTake(store, agent=silent, outbound=second, clock=clock) as turns:
        await clock.advance(100)
        record = await only_turn(turns)
    assert (first.sent, second.sent) == (["one"], ["two"])
    assert record.status == "answered"


async def test_a_reply_that_does_not_end_before_a_stop_is_of_unknown_fate(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """With `replies.on_unknown = "skip"` it is not sent again."""
    first, second = Slow(clock, 60_000), Postbox()
    await stopped_while_sending(store, clock, first, 500)
    async with TurnTake(store, agent=silent, outbound=second, clock=clock) as turns:
        await clock.advance(100)
        record = await only_turn(turns)
    assert (first.places, first.sent, second.sent) == ([0], [], ["two"])
    assert record.turn is not None
    assert record.turn.progress.unknown == (0,)


@pytest.mark.parametrize("verb", ["claim", "settle", "leave", "next_look"])
async def test_a_store_that_hangs_keeps_no_worker_from_stopping(
    verb: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What could not be handed back is taken by others when its lease ends."""
    monkeypatch.setattr(worker, "STORE_GRACE_MS", 10)
    store = MemoryStore(clock)

    async def hang(*args: object) -> None:
        await asyncio.Event().wait()

    async def stuck(turn: Turn) -> None:
        await asyncio.Event().wait()

    async with TurnTake(store, rules=AT_ONCE, agent=stuck, shutdown_ms=1, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        monkeypatch.setattr(store, verb, hang)
        if verb in ("claim", "next_look"):
            await say(turns, "hello", to="bob")
            await clock.advance(10)
    assert "stopping without it" in caplog.text
    monkeypatch.undo()
    answered: list[str] = []
    async with TurnTake(store, rules=AT_ONCE, agent=lambda turn: answered.append(turn.text), clock=clock):
        await clock.advance(70_000)
    assert answered.count("hello") == (2 if verb in ("claim", "next_look") else 1)


class HardOfHearing(MemoryStore):
    """Loses the first cancellation of whoever says that it lives, or listens for hints, as redis-py may."""

    async def join(self, worker: str) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def hints(self) -> AsyncIterator[Hint]:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()
        yield Hint(0)


async def test_a_stop_ends_also_what_loses_a_cancellation(clock: VirtualClock) -> None:
    """Else the process would not end, or a task would go on in a program that has left it behind."""
    before = asyncio.all_tasks()
    async with asyncio.timeout(5):
        async with TurnTake(HardOfHearing(clock), agent=silent, clock=clock):
            await clock.advance(1)
    assert asyncio.all_tasks() == before
