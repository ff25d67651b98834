"""One node of a cluster is killed or hangs: whoever lives on the others is claimed, extended and answered in time."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from harness.databases import Cluster, Valkey
from harness.redis_store import backend_of
from harness.writing import key
from turntake.buffer.redis import nodes
from turntake.buffer.redis.backend import RedisStore
from turntake.rules.conversation import Answered
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, OFF, say

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # redis-py drops nodes without closing them
PEOPLE = 24


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, 3, "cluster-require-full-coverage no", is_safe=False) as cluster:
        yield cluster
    gc.collect()


class Absence(NamedTuple):
    """A node that will be killed or stopped when `begin` is called."""

    node: Valkey
    begin: Callable[[], None]


@pytest.fixture(params=["killed", "hung"])
def absence(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Absence]:
    """The node is back for the next test."""
    node = cluster.nodes[2]
    yield Absence(node, node.kill if request.param == "killed" else node.pause)
    if node.is_running:
        node.resume()
    else:
        node.start()
    cluster.wait()


def lives_on(store: RedisStore, node: Valkey, claim: Claim) -> bool:
    shard = backend_of(store).shard_of(claim.key)
    (name,) = backend_of(store)._claiming.nodes.with_their_shards([shard])
    return name.endswith(f":{node.port}")


async def test_a_node_that_is_away_keeps_nobody_on_the_others_waiting(
    cluster: Cluster, absence: Absence, prefix: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims are held on all nodes. What one must say about its own is unknown; everything else goes on at once, also
    for a worker that shares its deadlines with others."""
    monkeypatch.setattr(nodes, "FIRST_PAUSE_MS", nodes.LONGEST_PAUSE_MS)
    async with RedisStore.open(f"{cluster.url}?prefix={prefix}&shards=12", clock) as store:
        await store.join("worker")
        for number in range(PEOPLE):
            await say(store, "m1", key=key(number), rules=OFF)
        held = await store.claim(PEOPLE // 2, LEASE_MS)
        assert len({backend_of(store).shard_of(claim.key) for claim in held}) > 3
        absence.begin()
        async with asyncio.timeout(5):
            claims: list[Claim] = []
            while len(claims) < PEOPLE // 2 and await store.next_look() == clock.now():
                more = await store.claim(PEOPLE, LEASE_MS)
                claims += more
                if not more:
                    break
        reachable = [claim for claim in held if not lives_on(store, absence.node, claim)]
        assert 0 < len(reachable) < len(held)
        assert claims
        assert not [claim for claim in claims if lives_on(store, absence.node, claim)]
        for claim in claims:
            assert await store.settle(claim, Answered())
        assert await store.extend(reachable, LEASE_MS) == [True] * len(reachable)
        if not absence.node.is_running:  # one that hangs takes its time to be given up
            kept = await store.extend(held, LEASE_MS)
            assert list(kept) == [True if claim in reachable else None for claim in held]


async def test_a_process_starts_while_a_node_is_away(
    cluster: Cluster, absence: Absence, prefix: str, clock: VirtualClock
) -> None:
    """It finds out about the others, and answers for them. That its URL names the number of shards is needed only if
    the node that has it written down is the one that is away."""
    async with RedisStore.open(f"{cluster.url}?prefix={prefix}&shards=12", clock) as store:
        for number in range(PEOPLE):
            await say(store, "m1", key=key(number), rules=OFF)
        absence.begin()
        async with RedisStore.open(f"{cluster.url}?prefix={prefix}&shards=12", clock) as worker:
            await worker.check()
            assert await worker.claim(PEOPLE, LEASE_MS)


async def test_whoever_asks_a_node_that_is_gone_hangs_up_on_no_other(
    cluster: Cluster, prefix: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are in the middle of their answers. A process that starts asks all of them for the time they noted."""
    monkeypatch.setattr(nodes, "FIRST_PAUSE_MS", 0)  # so that each look asks the one that is gone
    async with RedisStore.open(f"{cluster.url}?prefix={prefix}&shards=12", clock) as store:
        await say(store, "m1", rules=OFF)
        client = backend_of(store)._client
        hung_up = False

        async def hang_up() -> None:
            nonlocal hung_up
            hung_up = True

        cluster.nodes[2].kill()
        try:
            with monkeypatch.context() as patch:
                patch.setattr(client, "aclose", hang_up)
                for _ in range(5):
                    await backend_of(store).noted_time.set(clock.now())
        finally:
            cluster.nodes[2].start()
            cluster.wait()
        assert not hung_up


async def test_a_claim_that_a_node_confirms_too_late_is_handed_back(
    cluster: Cluster, prefix: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has it: it would be due again only when its lease ends."""
    async with RedisStore.open(f"{cluster.url}?prefix={prefix}&shards=12", clock) as store:
        await say(store, "m1", rules=OFF)
        swapper = backend_of(store)._swapper
        swap, late = swapper.swap, asyncio.Event()
        handed_back = asyncio.Event()

        async def slow(*given: object) -> object:
            if late.is_set():
                handed_back.set()
                return await swap(*given)  # type: ignore[arg-type]
            await late.wait()
            return await swap(*given)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(swapper, "swap", slow)
            patch.setattr("turntake.buffer.redis.claiming.WRITE_PATIENCE_MS", 10)
            assert await store.claim(5, LEASE_MS) == []
            late.set()
            async with asyncio.timeout(10):
                await handed_back.wait()
                while not (claims := await store.claim(5, LEASE_MS)):
                    await clock.advance(100)
        assert [(claim.turn.failures, claim.turn.lapses, claim.turn.attempt) for claim in claims] == [(0, 0, 2)]
