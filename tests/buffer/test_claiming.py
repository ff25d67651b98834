"""Who gets a conversation, when, and what becomes of it if they die: on every kind of store."""

import asyncio

from turntake.buffer.store import Store
from turntake.rules.conversation import Answered, Progress, Retry
from turntake.rules.key import ConversationKey
from turntake.rules.retry import after_failure, before_attempt
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import BOB, LEASE_MS, OFF, ids_of, open_ids, say, take


async def test_a_busy_conversation_is_looked_at_again(store: Store, clock: VirtualClock) -> None:
    """A second message falls due during an answer whose worker then dies: both are still handed over."""
    await say(store, "m1", rules=OFF)
    await take(store)
    await say(store, "m2")
    await clock.advance(30_000)
    assert await store.claim(5, LEASE_MS) == []
    await clock.advance(30_000)
    again = await take(store)
    assert ids_of(again) == ["m1"]
    await store.settle(again, Answered())
    assert ids_of(await take(store)) == ["m2"]


async def test_a_crash_right_after_claiming_leaves_a_deadline(store: Store, clock: VirtualClock) -> None:
    """The worker dies between taking the conversation and starting on it, and nobody writes again."""
    await say(store, "m1", rules=OFF)
    await take(store)
    assert await store.next_due() == clock.now() + LEASE_MS
    await clock.advance(LEASE_MS)
    assert ids_of(await take(store)) == ["m1"]


async def test_every_crashed_conversation_is_recovered(store: Store, clock: VirtualClock) -> None:
    """Fifty workers die with a claim each; when the leases end all fifty conversations are due, none forgotten."""
    for number in range(50):
        await say(store, "m1", key=ConversationKey.of(f"c{number}"), rules=OFF)
    assert len(await store.claim(50, LEASE_MS)) == 50
    await clock.advance(LEASE_MS)
    assert len(await store.claim(100, LEASE_MS)) == 50


async def test_a_handler_slower_than_its_lease_destroys_nothing(store: Store, clock: VirtualClock) -> None:
    """A outlives its lease, B takes over, A finishes late: B's claim and the messages since are untouched."""
    await say(store, "m1", rules=OFF)
    a = await take(store)
    await clock.advance(LEASE_MS)
    b = await take(store)
    await say(store, "m2", rules=OFF)
    assert not await store.save(a, Progress(("late",), 0, True))
    assert not await store.settle(a, Answered())
    assert await store.claim(5, LEASE_MS) == []
    assert await open_ids(store) == ["m1", "m2"]
    assert await store.settle(b, Answered())
    assert ids_of(await take(store)) == ["m2"]


async def test_a_poisonous_turn_stops_and_delays_nobody(store: Store, clock: VirtualClock) -> None:
    """A turn that always fails is tried a few times with growing pauses, then is a letter; others are on time."""
    rules = Rules(enabled=False, max_attempts=3)
    await say(store, "poison", rules=rules)
    pauses: list[int] = []
    while (due_at := await store.next_due()) is not None:
        await clock.advance(due_at - clock.now())
        claim = await take(store)
        settlement = after_failure(claim.turn, rules, "too large", clock.now(), chance=0.0)
        await store.settle(claim, settlement)
        if isinstance(settlement, Retry):
            pauses.append(settlement.after_ms)
            await say(store, f"healthy {len(pauses)}", key=BOB, rules=OFF)
            healthy = await take(store)
            assert healthy.key == BOB
            await store.settle(healthy, Answered())
    assert pauses == [500, 5_000]
    assert [letter.reason for letter in (await store.letters.list(5)).items] == ["failed 3 times"]


async def test_a_turn_that_kills_its_workers_stops_too(store: Store, clock: VirtualClock) -> None:
    """A turn whose worker dies without a word each time, with no other turn to blame, is given up like any other."""
    await say(store, "poison", rules=OFF)
    for _ in range(3):
        claim = await take(store)
        assert before_attempt(claim.turn, OFF) is None
        await store.extend([claim], LEASE_MS, "alone")
        await clock.advance(LEASE_MS)
    claim = await take(store)
    dead = before_attempt(claim.turn, OFF)
    assert dead is not None
    assert await store.settle(claim, dead)
    assert await store.next_due() is None


async def test_going_idle_and_a_new_message_cannot_miss_each_other(store: Store, clock: VirtualClock) -> None:
    """A worker settles its last turn at the very moment a message arrives, in either order: a deadline stands."""
    for number, message_first in enumerate((True, False)):
        await say(store, f"{number} first", rules=OFF)
        claim = await take(store)
        steps = [say(store, f"{number} second"), store.settle(claim, Answered())]
        await asyncio.gather(*(steps if message_first else reversed(steps)))
        assert await store.next_due() == clock.now() + 1_000
        await clock.advance(1_000)
        last = await take(store)
        assert ids_of(last) == [f"{number} second"]
        await store.settle(last, Answered())


async def test_a_message_beside_a_release_is_never_stranded(store: Store, clock: VirtualClock) -> None:
    """Whoever fails to claim goes away; the message was buffered first, so the release itself arms it."""
    await say(store, "m1", rules=OFF)
    holder = await take(store)
    await say(store, "m2", rules=OFF)
    assert await store.claim(1, LEASE_MS) == []
    await store.settle(holder, Answered())
    assert await store.next_due() == clock.now()
    assert ids_of(await take(store)) == ["m2"]


async def test_overlapping_workers_never_share_a_conversation(store: Store) -> None:
    """Two beats of a slow worker ask at once for the same due conversation: one gets it."""
    await say(store, "m1", rules=OFF)
    claims = await asyncio.gather(store.claim(5, LEASE_MS), store.claim(5, LEASE_MS))
    assert sorted(map(len, claims)) == [0, 1]


async def test_taking_is_not_deleting(store: Store, clock: VirtualClock) -> None:
    """A worker dies right after it took its work: the work is still there, visibly and to be claimed."""
    await say(store, "m1", "m2")
    await clock.advance(30_000)
    await take(store)
    assert await open_ids(store) == ["m1", "m2"]
    await clock.advance(LEASE_MS)
    assert ids_of(await take(store)) == ["m1", "m2"]


async def test_a_new_message_does_not_reopen_a_taken_conversation(store: Store, clock: VirtualClock) -> None:
    """A slow handler and one more message: no second worker gets the same person."""
    await say(store, "m1", rules=OFF)
    claim = await take(store, lease_ms=600_000)
    await say(store, "m2", rules=OFF)
    await clock.advance(599_999)
    assert await store.claim(5, LEASE_MS) == []
    assert await store.settle(claim, Answered())
