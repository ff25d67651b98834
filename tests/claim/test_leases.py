"""Leases: a claim holds while its worker lives, goes to another when it died, and a lost one can do nothing."""

import asyncio
from collections.abc import Sequence

import pytest

from harness.fake_outbound import Postbox
from harness.turns import ADA, AT_ONCE, only_turn, say, taken_over
from turntake import Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.claim import leases
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Lease
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock


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
        async def extend(
            self, claims: Sequence[Claim], lease_ms: int, lease: Lease | None = None
        ) -> Sequence[bool | None]:
            extended.append(len(claims))
            return await super().extend(claims, lease_ms, lease)

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


@pytest.mark.parametrize("way", ["silent", "failing", "unsure"])
async def test_a_part_of_the_store_that_is_away_keeps_nobody_from_claiming(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """One claim lies there and cannot be extended. Others are claimed, and nothing that runs is stopped for it."""
    monkeypatch.setattr(leases, "PATIENCE_MS", 0)

    class PartlyAway(MemoryStore):
        async def extend(
            self, claims: Sequence[Claim], lease_ms: int, lease: Lease | None = None
        ) -> Sequence[bool | None]:
            if way == "silent":
                await asyncio.Event().wait()
            if way == "failing":
                raise StoreUnavailable
            return [None for _ in claims]

    calls = []

    async def answer(turn: Turn) -> None:
        calls.append(turn.conversation.conversation)
        await clock.sleep(50_000)

    store = PartlyAway(clock)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, lease_ms=60_000, clock=clock) as turns:
        await say(turns, "hello", to="ada")
        await clock.advance(25_000)
        await say(turns, "hello", to="there")
        await clock.advance(1_000)
        assert calls == ["ada", "there"]
        await clock.advance(60_000)
        assert (await only_turn(turns)).status == "answered"
