"""When a conversation is due, and what moves that: on every kind of store."""

import pytest

from turntake.buffer.store import Store
from turntake.rules.conversation import Answered, Dead, Retry, Settlement, Touch
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, LEASE_MS, OFF, ids_of, order, say, take


async def test_a_message_in_time_moves_the_deadline_for_every_worker(store: Store, clock: VirtualClock) -> None:
    """A worker saw that a conversation is due, a message comes in between, and the claim must not flush early."""
    await say(store, "m1")
    await clock.advance(1_000)
    seen_due_at = await store.next_due()
    assert seen_due_at == clock.now()
    await say(store, "m2")
    assert await store.claim(5, LEASE_MS) == []
    assert await store.next_due() == clock.now() + 3_000
    await clock.advance(3_000)
    assert ids_of(await take(store)) == ["m1", "m2"]


async def test_the_newest_message_decides_not_each_for_itself(store: Store, clock: VirtualClock) -> None:
    """The first message is old enough, the second is not: neither leaves alone."""
    rules = Rules(typing_inference_ms=0)
    await say(store, "m1", rules=rules)
    await clock.advance(900)
    await say(store, "m2", rules=rules)
    await clock.advance(900)
    assert await store.claim(5, LEASE_MS) == []
    await clock.advance(100)
    assert ids_of(await take(store)) == ["m1", "m2"]


@pytest.mark.parametrize("kind", ["message", "activity"])
async def test_a_person_who_never_pauses_is_answered_at_max_wait(store: Store, clock: VirtualClock, kind: str) -> None:
    """Writing or typing without pause delays the turn to max wait after the first message, and no further."""
    rules = Rules(max_messages=10_000, capacity=10_000, max_wait_ms=30_000)
    await say(store, "m0", rules=rules)
    for number in range(1, 300):
        await clock.advance(100)
        if kind == "message":
            await say(store, f"m{number}", rules=rules)
        else:
            await store.touch(ANN, Touch("composing"), rules)
        assert await store.claim(5, LEASE_MS) == []
    await clock.advance(100)
    claim = await take(store)
    assert len(claim.messages) == (300 if kind == "message" else 1)
    assert claim.turn.due.at == claim.first_at + 30_000


@pytest.mark.parametrize("end", [Answered(), Dead("no"), Retry(0)], ids=["answered", "dead", "retried"])
async def test_the_end_of_a_turn_does_not_hurry_what_waits(store: Store, clock: VirtualClock, end: Settlement) -> None:
    """Somebody goes on typing while the answer before fails: what they wrote keeps its own, later deadline."""
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    await say(store, "m2")
    await order(store, "composing", 20_000)
    due_at = clock.now() + 20_000
    await clock.advance(5_000)
    assert await store.settle(claim, end)
    if isinstance(end, Retry):
        again = await take(store)
        assert ids_of(again) == ["m1"]
        assert await store.settle(again, Answered())
    assert await store.claim(5, LEASE_MS) == []
    assert await store.next_due() == due_at
    await clock.advance(15_000)
    assert ids_of(await take(store)) == ["m2"]
