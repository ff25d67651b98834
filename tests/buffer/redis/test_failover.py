"""A replica takes the primary's place: what that may cost, and what it may not."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as ConnectionLost

from harness.databases import HOST, Cluster, Sentinel, Valkey, until
from harness.proxy import proxying
from harness.redis_store import backend_of, shard_of, watched
from harness.writing import ROOMY, again, key
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.swap import SwapReply
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Answered, Progress
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import BOB, LEASE_MS, OFF, ids_of, open_ids, say, take

pytestmark = pytest.mark.usefixtures("no_errors_are_left_behind")


@pytest.fixture
def store(proxied_store: RedisStore) -> RedisStore:
    return proxied_store


def dump(server: Valkey) -> dict[bytes, Any]:
    """All that is there."""
    names = server.ask("KEYS", "*")
    return {name: server.ask("DUMP", name.decode()) for name in names}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Sentinel]:
    with Sentinel(tmp_path, down_after_ms=500) as pair:
        yield pair


def cut_off(pair: Sentinel) -> None:
    """The replica gets nothing more, and what is under way to it is lost."""
    pair.replica.pause()
    pair.primary.ask("CLIENT", "KILL", "TYPE", "replica")


def fail_over(pair: Sentinel) -> None:
    """The primary dies for good, and the replica takes its place."""
    old = pair.primary.port
    pair.primary.kill()
    pair.replica.resume()
    until(lambda: pair.primary_port() != old)
    until(lambda: pair.replica.ask("INFO", "replication")["role"] == "master")


def all_name(pair: Sentinel, primary: Valkey) -> bool:
    asked = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", pair.name)
    return all(int(watcher.ask(*asked)[1]) == primary.port for watcher in pair.watchers)


def milliseconds(server: Valkey) -> int:
    """The server's own time."""
    seconds, micros = server.ask("TIME")
    return int(seconds * 1000 + micros // 1000)


def has_all(replica: Valkey, primary: Valkey) -> bool:
    theirs, ours = replica.ask("INFO", "replication"), primary.ask("INFO", "replication")
    return bool(theirs["master_link_status"] == "up" and theirs["slave_repl_offset"] >= ours["master_repl_offset"])


async def test_what_a_failover_took_is_counted_and_reported(
    pair: Sentinel, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing waits for the replica by default: the store cannot prevent the loss, but it does not hide it."""
    async with RedisStore.open(pair.url, clock) as store:
        for number in range(3):
            await say(store, f"kept-{number}", rules=ROOMY)
        await asyncio.to_thread(until, lambda: has_all(pair.replica, pair.primary))
        await asyncio.to_thread(cut_off, pair)
        for number in range(2):
            await say(store, f"lost-{number}", rules=ROOMY)
            # What is written in the same millisecond is counted once.
            written_at = milliseconds(pair.primary)
            await asyncio.to_thread(until, lambda at=written_at: milliseconds(pair.primary) > at)
        await asyncio.to_thread(fail_over, pair)
        async with asyncio.timeout(15):
            await again(store, "new-1", BOB)
            await again(store, "new-2")
        assert await open_ids(store) == ["kept-0", "kept-1", "kept-2", "new-2"]
        assert backend_of(store).lost == 2, "though as many are new"
    records = [record for record in caplog.records if "lost messages" in record.message]
    assert [(record.levelno, record.lost) for record in records] == [(logging.ERROR, 2)]  # type: ignore[attr-defined]


async def test_an_answer_that_was_overtaken_tells_of_no_loss(url: str, store: RedisStore) -> None:
    """A claim and an append are under way at once: the older count may be read last."""
    swapper, shard = backend_of(store)._swapper, shard_of(store)
    for server_at, messages in ((10, 5), (9, 4), (10, 4), (11, 6)):
        swapper._count(shard, SwapReply(server_at, 0, False, messages, []), [])
        assert swapper.lost == 0
    swapper._count(shard, SwapReply(12, 0, False, 4, []), [])
    assert swapper.lost == 2


async def test_with_wait_nothing_acknowledged_is_lost_in_a_failover(pair: Sentinel, clock: VirtualClock) -> None:
    """What no replica has in time is not acknowledged, however often it is sent."""
    async with RedisStore.open(f"{pair.url}?wait=1&wait_ms=200", clock) as store:
        acknowledged = ["m0", "m1"]
        for message_id in acknowledged:
            assert (await say(store, message_id, rules=ROOMY)).status == "buffered"
        await asyncio.to_thread(cut_off, pair)
        for message_id in ("m2", "m2", "m1"):
            with pytest.raises(StoreUnavailable, match="replicas"):
                await say(store, message_id, rules=ROOMY)
        await asyncio.to_thread(fail_over, pair)
        assert await found_again(store) == acknowledged
        assert backend_of(store).lost == 0
        with pytest.raises(StoreUnavailable, match="replicas"):
            await say(store, "m3", rules=ROOMY)


async def found_again(store: RedisStore) -> list[str]:
    """What the new primary has, once the store has found it."""
    while True:
        try:
            return await open_ids(store)
        except StoreUnavailable:
            continue


async def test_a_failover_that_loses_nothing_costs_seconds(pair: Sentinel, clock: VirtualClock) -> None:
    """Writers that send again until they are answered lose nothing, and the store finds the new primary by itself."""
    async with RedisStore.open(pair.url, clock) as store:
        for number in range(20):
            await say(store, f"m{number}", key=key(number % 4), rules=ROOMY)
        await asyncio.to_thread(until, lambda: has_all(pair.replica, pair.primary))
        await asyncio.to_thread(pair.primary.kill)
        async with asyncio.timeout(15):
            for number in range(20, 40):
                await again(store, f"m{number}", key(number % 4))
        stored = [message_id for number in range(4) for message_id in await open_ids(store, key(number))]
        assert sorted(stored) == sorted(f"m{number}" for number in range(40))
        assert backend_of(store).lost == 0
        assert await store.rebuild() == 0


async def test_a_primary_that_was_replaced_as_planned_is_left(pair: Sentinel, clock: VirtualClock) -> None:
    """It takes itself for the primary for seconds more, and what it takes then is lost."""
    async with RedisStore.open(pair.url, clock) as store:
        await say(store, "m1", rules=ROOMY)
        await asyncio.to_thread(until, lambda: has_all(pair.replica, pair.primary))
        await asyncio.to_thread(pair.watchers[0].ask, "SENTINEL", "FAILOVER", pair.name)
        await asyncio.to_thread(until, lambda: pair.replica.ask("ROLE")[0] == b"master")
        await asyncio.to_thread(until, lambda: all_name(pair, pair.replica))
        await backend_of(store)._primary.look()
        await again(store, "m2")
        assert await asyncio.to_thread(pair.replica.ask, "HGET", "turntake:{s0}:counts", "messages") == b"2"


async def test_the_primary_is_asked_for_every_second(
    pair: Sentinel, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RedisStore.open(pair.url, clock) as store:
        looks = []

        async def look() -> None:
            looks.append(clock.now())
            raise ConnectionLost("no Sentinel is there")

        monkeypatch.setattr(backend_of(store)._primary, "look", look)
        await clock.advance(3_000)
    assert len(looks) == 3, "though they do not answer"


async def test_a_row_that_went_back_in_a_failover_is_not_taken_for_the_one_remembered(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """The failover took a write away, and another process wrote the next one since: the same version, another row.
    Whoever remembers the lost one must not write over what was acknowledged afterwards."""
    await say(store, "m1", rules=OFF)
    replicated = dump(server)
    await say(store, "m2", rules=OFF)
    server.ask("FLUSHALL")
    with server.client() as client:
        for name, value in replicated.items():
            client.restore(name, 0, value)
    async with RedisStore.open(server.url, clock) as other:
        claim = await take(other)
        await say(store, "m3", rules=OFF)
        assert await other.extend([claim], LEASE_MS) == [True]
        assert await store.claim(5, LEASE_MS) == []
        assert await open_ids(other) == ["m1", "m3"]


@pytest.mark.parametrize("kind", ["server", "cluster"])
async def test_with_wait_and_no_replica_nothing_is_acknowledged(tmp_path: Path, clock: VirtualClock, kind: str) -> None:
    """WAIT goes on the connection that wrote, also to a cluster's node; what is there may still be read."""
    servers = Valkey(tmp_path, is_safe=False) if kind == "server" else Cluster(tmp_path, 1, is_safe=False)
    with servers:
        async with RedisStore.open(f"{servers.url}?wait=1&wait_ms=50", clock) as store:
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="replicas"):
                    await say(store, "m1", rules=OFF)
            assert await open_ids(store) == ["m1"]
        async with RedisStore.open(servers.url, clock) as store:
            assert (await say(store, "m1", rules=OFF)).status == "duplicate"
            assert ids_of(await take(store)) == ["m1"]


async def test_a_name_that_moves_to_the_new_primary_is_followed(tmp_path: Path, clock: VirtualClock) -> None:
    """As with managed services: the old primary lives on as a replica, and keeps the connections it has."""
    with Valkey(tmp_path / "old", is_safe=False) as old, proxying(old.port) as proxy:
        follow = (f"replicaof {HOST} {old.port}", "repl-diskless-sync-delay 0")
        with Valkey(tmp_path / "new", *follow, is_safe=False) as new:
            async with RedisStore.open(f"redis://{HOST}:{proxy.port}", clock) as store:
                await say(store, "m1", rules=ROOMY)
                await store.find(BOB)
                await asyncio.to_thread(until, lambda: has_all(new, old))
                new.ask("REPLICAOF", "NO", "ONE")
                old.ask("REPLICAOF", HOST, new.port)
                proxy.lead_to(new.port)
                async with asyncio.timeout(10):
                    await again(store, "m2")
                assert await open_ids(store) == ["m1", "m2"]


async def test_work_goes_on_while_the_replica_that_messages_wait_for_is_away(
    server: Valkey, clock: VirtualClock, store: RedisStore
) -> None:
    """A replica is promised for messages alone. An answer that was saved must not count as failed for want of one,
    also if it was saved in the same call as somebody's message."""
    await say(store, "m1", rules=OFF)
    async with RedisStore.open(f"{server.url}?wait=1&wait_ms=20", clock) as careful:
        with watched(server) as seen:
            claim = await take(careful)
            assert await careful.extend([claim], LEASE_MS) == [True]
            assert await careful.save(claim, Progress(("hello",), 0, True))
        assert "WAIT" not in {command.name for command in seen}
        settled, said = await asyncio.gather(
            careful.settle(claim, Answered(("hello",))), say(careful, "m2", key=BOB), return_exceptions=True
        )
        assert settled is True
        assert isinstance(said, StoreUnavailable)
        assert await open_ids(careful) == []
        with pytest.raises(StoreUnavailable, match="replicas"):
            await say(careful, "m2", key=BOB)
