"""What is stored, once and for as long as nobody answered it: on every kind of store."""

import asyncio

import pytest

from turntake.buffer.store import Store
from turntake.rules import transitions
from turntake.rules.conversation import Answered
from turntake.rules.key import ConversationKey
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, LEASE_MS, OFF, ids_of, say, take

OUTAGE_MS = 90 * 24 * 3_600_000


async def test_the_same_webhook_twice_is_one_message(store: Store, clock: VirtualClock) -> None:
    """A provider repeats a webhook whose answer it never saw, at once and a week later."""
    first, second = await asyncio.gather(say(store, "m1"), say(store, "m1"))
    assert sorted([first.status, second.status]) == ["buffered", "duplicate"]
    await clock.advance(1_000)
    claim = await take(store)
    assert ids_of(claim) == ["m1"]
    await store.settle(claim, Answered())
    await clock.advance(7 * 24 * 3_600_000)
    await store.history.forget(clock.now() - 8 * 24 * 3_600_000)
    assert (await say(store, "m1")).status == "duplicate"


async def test_a_buffer_outlives_any_outage(store: Store, clock: VirtualClock) -> None:
    """Nobody works for three months, and forgetting goes on: what waits is still there and is handed over."""
    await say(store, "m1")
    await clock.advance(OUTAGE_MS)
    await store.history.forget(clock.now())
    assert ids_of(await take(store)) == ["m1"]


async def test_twenty_concurrent_messages_are_twenty_messages(store: Store, clock: VirtualClock) -> None:
    """Twenty webhooks write to one conversation at the same time."""
    await asyncio.gather(*(say(store, f"m{number}") for number in range(20)))
    await clock.advance(30_000)
    claim = await take(store)
    assert [message.seq for message in claim.messages] == list(range(1, 21))
    assert set(ids_of(claim)) == {f"m{number}" for number in range(20)}


async def test_keys_that_look_alike_do_not_collide(store: Store) -> None:
    """ "1" + "23" and "12" + "3" are two people, also with separators inside the parts."""
    pairs = [("1", "23"), ("12", "3"), ("1:2", "3"), ("1", "2:3"), ("1~3A2", "3")]
    keys = [ConversationKey.of(conversation, account=account) for account, conversation in pairs]
    for key in keys:
        await say(store, "m1", key=key, rules=OFF)
    claims = await store.claim(10, LEASE_MS)
    assert [claim.key for claim in claims] == sorted(keys, key=str)
    assert len({claim.turn.id for claim in claims}) == len(pairs)


async def test_of_what_waits_in_thousands_the_first_are_shown(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who floods a conversation must not fill the memory of whoever looks at it. All are counted."""
    monkeypatch.setattr(transitions, "SHOWN", 3)
    for number in range(5):
        await say(store, f"m{number}")
    found = await store.find(ANN)
    assert found is not None
    assert [message.id for message in found.messages] == ["m0", "m1", "m2"]
    assert found.conversation.waiting == 5
