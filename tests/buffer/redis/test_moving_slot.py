"""A slot of a cluster moves from one node to another, key by key, while people write."""

from collections.abc import Iterator

import pytest

from harness.databases import Cluster
from harness.redis_store import shard_of
from harness.slots import begin_move, end_move, move_keys, owner
from harness.writing import ROOMY, key
from turntake.buffer.redis.backend import RedisStore
from turntake.errors import StoreUnavailable
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, OFF, open_ids, say, take


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), 2, is_safe=False) as cluster:
        yield cluster


class Move:
    """The slot of a name, on its way to the other node, one step after the other."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._slot = int(cluster.nodes[0].ask("CLUSTER", "KEYSLOT", name))
        source = owner(cluster, self._slot)
        (self._target,) = (node for node in cluster.nodes if node is not source)

    def begin(self) -> None:
        begin_move(self._cluster, self._slot, self._target)

    def carry(self) -> None:
        while move_keys(self._cluster, self._slot, self._target):
            pass

    def end(self) -> None:
        end_move(self._cluster, self._slot, self._target)


@pytest.mark.parametrize("wait", ["", "&wait=1&wait_ms=20"])
async def test_whoever_talks_already_goes_on_while_a_slot_moves(
    cluster: Cluster, prefix: str, clock: VirtualClock, wait: str
) -> None:
    """From the moment that it is marked, and again once all its keys are there: neither node must be asked for a key
    that is not there yet. With `wait`, too; there is no replica, so the message is stored and not acknowledged."""
    async with RedisStore.open(f"{cluster.url}?prefix={prefix}&shards=1", clock) as store:
        await say(store, "m1", rules=ROOMY)
        move = Move(cluster, shard_of(store).due)
        async with RedisStore.open(f"{cluster.url}?prefix={prefix}{wait}", clock) as writer:
            for message_id, step in (("m2", move.begin), ("m3", move.carry), ("m4", move.end)):
                step()
                if wait:
                    with pytest.raises(StoreUnavailable, match="replicas"):
                        await say(writer, message_id, rules=ROOMY)
                else:
                    assert (await say(writer, message_id, rules=ROOMY)).status == "buffered"
        assert await open_ids(store) == ["m1", "m2", "m3", "m4"]


async def test_what_a_moving_slot_cannot_take_is_refused_whole_and_taken_afterwards(
    cluster: Cluster, prefix: str, clock: VirtualClock
) -> None:
    """A new conversation needs a new key, which neither node may make: its sender sends it again."""
    async with RedisStore.open(f"{cluster.url}?prefix={prefix}&shards=1", clock) as store:
        await say(store, "m1", rules=OFF)
        move = Move(cluster, shard_of(store).due)
        move.begin()
        with pytest.raises(StoreUnavailable):
            await store.claim(5, LEASE_MS)
        move.carry()
        move.end()
        await clock.advance(1_000)
        assert (await take(store)).turn.attempt == 1


async def test_a_new_store_on_a_cluster_has_many_small_parts_and_an_older_one_keeps_its_own(
    cluster: Cluster, prefix: str, clock: VirtualClock
) -> None:
    """The number was written down when the store was made; a URL that says nothing goes by it."""
    async with RedisStore.open(f"{cluster.url}?prefix={prefix}", clock) as store:
        assert store.backend.shards == 256
        for number in range(20):
            await say(store, "m1", key=key(number), rules=OFF)
        assert len(await store.claim(50, LEASE_MS)) == 20
    async with RedisStore.open(f"{cluster.url}?prefix={prefix}-older&shards=16", clock) as store:
        await say(store, "m1", rules=OFF)
    async with RedisStore.open(f"{cluster.url}?prefix={prefix}-older", clock) as store:
        assert store.backend.shards == 16
        assert (await take(store)).turn.attempt == 1
