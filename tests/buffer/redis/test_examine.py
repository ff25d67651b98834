"""What `turntake doctor` says about a Redis store, on real servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.databases import ALWAYS, HOST, Cluster, Valkey, until
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.examine import examine, shard_finding
from turntake.buffer.redis.url import options_of
from turntake.clock import Clock, SystemClock
from turntake.finding import Finding
from turntake.testing.clock import VirtualClock


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def replica(server: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """The server's, and in step with it."""
    server.ask("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    with Valkey(tmp_path_factory.mktemp("replica"), f"replicaof {HOST} {server.port}") as replica:
        until(lambda: server.ask("INFO", "replication").get("slave0", {}).get("state") == "online")
        yield replica


async def found(url: str, clock: Clock | None = None) -> list[Finding]:
    return [finding async for finding in examine(url, clock or SystemClock())]


def one(checks: list[Finding], about: str) -> Finding:
    (finding,) = (finding for finding in checks if finding.subject == about)
    return finding


@pytest.mark.parametrize(
    ("policy", "mark", "says"),
    [
        ("always", "ok", "is on the server's disk"),
        ("everysec", "warn", "a moment may be if only the server is killed"),
        ("no", "warn", "half a minute"),
    ],
)
async def test_the_doctor_says_how_soon_a_write_is_on_disk(server: Valkey, policy: str, mark: str, says: str) -> None:
    server.ask("CONFIG", "SET", "appendfsync", policy)
    finding = one(await found(server.url), "durability")
    assert finding.level == mark
    assert finding.text.startswith(f"appendonly yes, appendfsync {policy}: ")
    assert says in finding.text


async def test_a_server_without_aof_is_marked(tmp_path: Path) -> None:
    with Valkey(tmp_path, is_safe=False) as server:
        finding = one(await found(server.url), "durability")
    assert (finding.level, finding.text.partition(":")[0]) == ("warn", "appendonly no")
    assert finding.text.endswith("set appendonly yes")


async def test_what_this_user_may_not_ask_is_unknown(server: Valkey) -> None:
    """CONFIG is dangerous and often forbidden, INFO sometimes; the rest is told all the same."""
    server.ask("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-config")
    checks = await found(server.url.replace("//", "//app:secret@"))
    assert one(checks, "durability").text.startswith("appendonly yes, appendfsync unknown: this user may not ask")
    server.ask("ACL", "SETUSER", "plain", "on", ">secret", "~*", "+@all", "-@dangerous")
    checks = await found(server.url.replace("//", "//plain:secret@"))
    assert [(finding.level, finding.subject) for finding in checks] == [
        ("warn", "store"),
        ("ok", "clock"),
        ("ok", "store"),
    ]
    assert "nobody can tell what it keeps" in checks[0].text


async def test_wait_needs_as_many_replicas(server: Valkey, replica: Valkey) -> None:
    assert one(await found(server.url), "replicas") == Finding("ok", "replicas", "1 replica connected")
    enough = one(await found(f"{server.url}?wait=1"), "replicas")
    assert enough == Finding("ok", "replicas", "1 replica connected, enough for wait=1")
    few = one(await found(f"{server.url}?wait=2"), "replicas")
    assert few.level == "fail"
    assert few.text.startswith("1 replica connected, and wait=2 asks for more")
    assert few.text.endswith("connect more, or lower `wait` in the store's URL")


@pytest.mark.parametrize(
    ("policy", "mark"), [("noeviction", "ok"), ("volatile-lru", "ok"), ("allkeys-lru", "fail"), ("allkeys-lfu", "fail")]
)
async def test_a_policy_that_evicts_keys_is_marked(tmp_path: Path, policy: str, mark: str) -> None:
    with Valkey(tmp_path, f"maxmemory-policy {policy}") as server:
        (finding,) = (finding for finding in await found(server.url) if "maxmemory-policy" in finding.text)
    assert finding.level == mark
    assert f"maxmemory-policy is {policy}" in finding.text


async def test_a_replica_cannot_be_used_as_a_store(server: Valkey, replica: Valkey) -> None:
    assert (await found(replica.url))[0].level == "fail"
    assert "name the primary" in (await found(replica.url))[0].text
    assert (await found(server.url))[0].text.endswith("answers as primary")


async def test_wait_without_any_replica_is_pointed_out(tmp_path: Path) -> None:
    with Valkey(tmp_path, ALWAYS) as server:
        assert one(await found(f"{server.url}?wait=1"), "replicas").text.startswith("0 replicas connected, and wait=1")
        assert {finding.level for finding in await found(server.url)} == {"ok"}


@pytest.mark.parametrize(
    ("ahead_ms", "mark", "says"),
    [(0, "ok", "this machine's"), (5_000, "warn", "behind"), (-5_000, "warn", "ahead of")],
)
async def test_clocks_that_differ_by_more_than_a_second(server: Valkey, ahead_ms: int, mark: str, says: str) -> None:
    """The server's rules; times in the logs of this machine would not fit."""
    clock = VirtualClock(SystemClock().now() + ahead_ms)
    finding = one(await found(server.url, clock), "clock")
    assert finding.level == mark
    assert says in finding.text


async def test_shards_are_counted(server: Valkey) -> None:
    """A number that serving would refuse is refused here too."""
    for number, words in ((1, "1 shard"), (3, "3 shards")):
        url = f"{server.url}?prefix=p{number}"
        async with RedisStore.open(f"{url}&shards={number}", SystemClock()):
            pass
        assert (await found(url))[-1] == Finding("ok", "store", f"prefix p{number}: {words}")
        assert (await found(f"{url}&shards={number}"))[-1].level == "ok"
        assert (await found(f"{url}&shards=9"))[-1].level == "fail"


@pytest.mark.parametrize(
    ("url", "shards", "is_told"),
    [
        ("redis+cluster://host:6379?prefix=chat", 16, True),
        ("redis+cluster://host:6379?prefix=chat", 256, False),
        ("redis+cluster://host:6379?prefix=chat&shards=16", 16, False),
        ("redis://host:6379?prefix=chat", 1, False),
    ],
)
def test_a_cluster_of_few_shards_is_told_how_to_get_more(url: str, shards: int, is_told: bool) -> None:
    """As stores of earlier releases have; whoever wrote the number down wants it so."""
    finding = shard_finding(shards, options_of(url))
    assert finding.level == "ok"
    assert finding.text.startswith(f"prefix chat: {shards} shard")
    assert ("such as chat2" in finding.text) == is_told


async def test_every_primary_of_a_cluster_is_examined(tmp_path: Path) -> None:
    """One that keeps less than the others is found out, by its address."""
    with Cluster(tmp_path, 2, ALWAYS) as cluster:
        cluster.nodes[1].ask("CONFIG", "SET", "appendfsync", "everysec")
        checks = await found(cluster.url)
    names = [finding.text.split()[3] for finding in checks if "answers as primary" in finding.text]
    marks = [finding.level for finding in checks if finding.subject == "durability"]
    ports = [node.port for node in cluster.nodes]
    assert dict(zip(names, marks, strict=True)) == {f"{HOST}:{ports[0]}": "ok", f"{HOST}:{ports[1]}": "warn"}
    assert [finding.subject for finding in checks].count("clock") == 2
    assert [finding.subject for finding in checks].count("replicas") == 2
