"""What a second pair of eyes found in the Redis store: each was so once."""

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.databases import Cluster, Valkey
from harness.proxy import proxying
from turntake.buffer.engine import history as reading
from turntake.buffer.redis import claiming
from turntake.buffer.redis.backend import RedisShelf
from turntake.buffer.redis.store import RedisStore
from turntake.buffer.store import Query
from turntake.clock import SystemClock
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Answered
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, LEASE_MS, OFF, ids_of, say, take
from turntake.testing.store_machine import conversations_by_pages

MANY = Rules(capacity=9_999, max_messages=9_999)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("redis"), is_safe=False) as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(server: Valkey, clock: VirtualClock) -> AsyncIterator[RedisStore]:
    server.ask("FLUSHALL")
    async with RedisStore.open(server.url, clock) as store:
        yield store


def shelf_of(store: RedisStore) -> RedisShelf:
    assert isinstance(store.shelf, RedisShelf)
    return store.shelf


def key(number: int) -> ConversationKey:
    return ConversationKey.of(f"c{number:03}")


async def test_a_claim_waits_for_no_replica(server: Valkey, store: RedisStore, clock: VirtualClock) -> None:
    """Written but reported as failed, it would hold a lease for nobody, again and again, until the turn was dead."""
    await say(store, "m1", rules=OFF)
    async with RedisStore.open(f"{server.url}?wait=1&wait_ms=20", clock) as careful:
        with pytest.raises(StoreUnavailable, match="replicas"):
            await say(careful, "m2", rules=OFF)
        claim = await take(careful)
        assert ids_of(claim) == ["m1"]
        assert claim.turn.failures == 0


async def test_what_was_claimed_is_handed_out_though_the_next_look_fails(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim looks again while it has room; what it has by then must not wait for the end of its lease."""
    await say(store, "m1", rules=OFF)
    look, looks = shelf_of(store)._claiming._due_before, []

    async def fails_later(*given: Any) -> Any:
        looks.append(given)
        if len(looks) > 1:
            raise StoreUnavailable
        return await look(*given)

    monkeypatch.setattr(shelf_of(store)._claiming, "_due_before", fails_later)
    assert [ids_of(claim) for claim in await store.claim(5, LEASE_MS)] == [["m1"]]
    with pytest.raises(StoreUnavailable):
        await store.claim(5, LEASE_MS)


async def test_a_turn_whose_messages_cannot_be_read_is_handed_back(
    store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no failure of the turn's, and somebody else may have it at once."""
    await store.append([Append(ANN, Message(f"m{number}"), MANY) for number in range(claiming.MESSAGES_OFFERED + 1)])
    await clock.advance(60_000)

    async def fails(*given: Any) -> Any:
        raise StoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(shelf_of(store), "messages", fails)
        assert await store.claim(1, LEASE_MS) == []
    claim = await take(store)
    assert len(claim.messages) == claiming.MESSAGES_OFFERED + 1
    assert claim.turn.failures == 0


# redis-py drops nodes that left the cluster without closing them.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_one_node_that_is_down_does_not_stop_the_others(tmp_path: Path, clock: VirtualClock) -> None:
    """Whoever lives on the other nodes is still answered."""
    with Cluster(tmp_path, 3, "cluster-require-full-coverage no", is_safe=False) as cluster:
        async with RedisStore.open(f"{cluster.url}?shards=6", clock) as store:
            for number in range(12):
                await say(store, "m1", key=key(number), rules=OFF)
            cluster.nodes[2].kill()
            claims = await store.claim(20, LEASE_MS)
            assert 0 < len(claims) < 12
            assert await store.next_due() is not None
    gc.collect()


async def test_nobody_falls_behind_the_latest_time_that_was_noted(server: Valkey, store: RedisStore) -> None:
    """After a failover to a server whose clock is behind, deadlines were given by the time before."""
    await say(store, "m1")
    async with RedisStore.open(server.url, SystemClock()) as other:
        later = other.clock.now() + 20_000
        server.ask("HSET", "turntake:{s0}:counts", "seen", later)
        await say(other, "m2")
        assert other.clock.now() >= later


async def test_a_server_that_takes_long_is_given_longer(server: Valkey, store: RedisStore) -> None:
    """What was decided a second ago is decided again, but not for ever."""
    with proxying(server.port) as proxy:
        async with RedisStore.open(server.url.replace(str(server.port), str(proxy.port)), SystemClock()) as slow:
            await say(slow, "m1")
            proxy.delay(600)
            assert (await say(slow, "m2")).status == "buffered"


async def test_a_listing_skips_nobody_who_moves_meanwhile(
    store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages go on from where the index was read, not from where the last row went since."""
    monkeypatch.setattr(reading, "PAGE", 2)
    for number in range(6):
        await say(store, "m1", key=key(number), rules=OFF)
    load, loads = shelf_of(store).load, []

    async def load_late(keys: Any) -> Any:
        loads.append(keys)
        if len(loads) == 1:
            for claim in await store.claim(2, LEASE_MS):
                await store.settle(claim, Answered())
        return await load(keys)

    monkeypatch.setattr(shelf_of(store), "load", load_late)
    listed = {key for key, _ in await conversations_by_pages(store, Query(limit=50))}
    assert listed == {key(number) for number in range(6)}


async def test_two_databases_of_a_server_do_not_hear_each_other(server: Valkey, clock: VirtualClock) -> None:
    """Channels have no database, and turn ids are alike everywhere: a hint would stop another's answer."""
    async with RedisStore.open(f"{server.url}/0", clock) as one, RedisStore.open(f"{server.url}/1", clock) as other:
        assert shelf_of(one)._channel != shelf_of(other)._channel


async def test_forgetting_gets_past_entries_without_a_row(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """They go too, or they would stand before all others for ever."""
    server.ask("ZADD", "turntake:{s0}:closed", 1, "turn_0000ghost")
    await say(store, "m1", rules=OFF)
    await store.settle(await take(store), Answered())
    await clock.advance(1)
    assert await store.history.forget(clock.now()) == 2
    assert server.ask("ZCARD", "turntake:{s0}:closed") == 0
