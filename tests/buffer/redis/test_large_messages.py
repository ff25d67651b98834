"""Claims of large messages: bounded in bytes, in pages that a slow line can carry, and nobody is left out."""

import asyncio

import pytest
from msgspec.structs import replace

from harness.databases import Valkey
from harness.redis_store import backend_of, shard_of, watched
from harness.writing import ROOMY, key
from turntake.buffer.engine.offer_size import LEAST_BYTES, OFFER_BYTES, OfferSize
from turntake.buffer.redis import claiming
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.scripts import RESERVE_DUE
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, LEASE_MS, OFF, ids_of, say, take

KB100 = "x" * 100_000


async def test_an_offer_ends_where_it_is_large_enough_and_the_rest_stays_due(
    store: RedisStore, clock: VirtualClock
) -> None:
    """Thirty conversations of 100 KB are claimed ten or so at a time, and each once."""
    for number in range(30):
        await store.append([Append(key(number), Message("m1", KB100), OFF)])
    sizes, claimed = [], set()
    while claims := await store.claim(100, LEASE_MS):
        sizes.append(sum(len(message.text) for claim in claims for message in claim.messages))
        claimed |= {claim.key for claim in claims}
    assert len(claimed) == 30
    assert len(sizes) == 4
    assert max(sizes) <= OFFER_BYTES


async def test_a_turn_that_is_larger_than_an_offer_is_claimed_whole(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """Its messages are read afterwards, in parts."""
    large = replace(ROOMY, max_turn_bytes=10_000_000)
    await store.append([Append(ANN, Message(f"m{number}", KB100), large) for number in range(35)])
    await say(store, "m1", key=key(1), rules=OFF)
    await clock.advance(60_000)
    with watched(server) as seen:
        claims = [*await store.claim(5, LEASE_MS), *await store.claim(5, LEASE_MS)]
    assert sorted(len(claim.messages) for claim in claims) == [1, 35]
    parts = [len(command.words) - 2 for command in seen if command.name == "HMGET" and not command.is_inner]
    assert sum(parts) == 35
    assert max(parts) * len(KB100) <= OFFER_BYTES


async def test_an_offer_that_did_not_arrive_in_time_is_followed_by_a_smaller_one(
    store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The repeated call finds everything reserved and nothing due; the next one asks for half as much, and says so."""
    for number in range(8):
        await store.append([Append(key(number), Message("m1", KB100), OFF)])
    loop = asyncio.get_running_loop()
    passed = 0.0
    clocked = loop.time

    async def slow(*given: object) -> object:
        nonlocal passed
        answer = await RESERVE_DUE(*given)  # type: ignore[arg-type]
        passed += 3.0
        return answer if passed > 3 else await RESERVE_DUE(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(claiming, "RESERVE_DUE", slow)
    monkeypatch.setattr(loop, "time", lambda: clocked() + passed)
    assert await store.claim(100, LEASE_MS) == []
    assert "took too long" in caplog.text
    await clock.advance(claiming.RESERVED_MS)
    assert len(await store.claim(100, LEASE_MS)) == 4


def test_the_size_of_offers_halves_and_recovers() -> None:
    size = OfferSize()
    for _ in range(20):
        size.took(2_000, 2_000)
    assert size.bytes == LEAST_BYTES
    size.took(1_000, 2_000)
    assert size.bytes == LEAST_BYTES, "that was just in time"
    for _ in range(20):
        size.took(5, 2_000)
    assert size.bytes == OFFER_BYTES


async def test_one_message_of_many_that_cannot_be_read_harms_no_other_claim(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """The 120th of 150, which is read after the claim: those who were claimed beside it are handed out."""
    await store.append([Append(ANN, Message(f"m{number}"), ROOMY) for number in range(150)])
    await clock.advance(60_000)
    for number in range(20):
        await say(store, "m1", key=key(number), rules=OFF)
    server.ask("HSET", shard_of(store).conversation(ANN), "m120", "spoiled!spoiled!")
    claims = await store.claim(100, LEASE_MS)
    assert {claim.key for claim in claims} >= {key(number) for number in range(20)}
    assert backend_of(store).lost == 0
    await say(store, "m2", key=key(30), rules=OFF)
    assert ids_of(await take(store)) == ["m2"]
