"""Each fault is recorded with its end, and leaves a store that answers and takes writes."""

import asyncio
import random
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis import Redis
from redis.cluster import RedisCluster

from chaos.allowed import ALLOWED
from chaos.history import History
from chaos.store_faults import store_faults
from chaos.stores import STORES, Setup, redis
from harness.databases import HOST, until

NETWORK = {"cut", "blackhole", "lose requests", "lose replies", "delay", "drop replies"}
OWN = {
    "redis": {"restart store", "kill store", "sever", "hang store"},
    "wait": {"promote, planned", "promote", "promote, replica behind", "hang replica", "kill replica"},
    "sentinel": {"fail over", "fail over, replica behind", "kill primary", "hang primary", "sever"},
    "cluster": {"kill node", "hang node", "move slot", "sever"},
}


class Hasty(random.Random):
    """Chance that takes the shortest time."""

    def uniform(self, a: float, b: float) -> float:
        return a


def takes_writes(setup: Setup) -> bool:
    """Asked as a client does who knows nothing."""
    if setup.url.startswith("redis+cluster"):
        with RedisCluster.from_url(setup.url.replace("+cluster", ""), socket_timeout=5) as nodes:
            return all(nodes.set(f"turntake:{{s{number}}}:due", 1) for number in range(8))
    port = urlsplit(setup.url).port
    assert port is not None
    with Redis(HOST, port, socket_timeout=5) as client:
        return bool(client.set("a", 1))


# Not with Sentinel, where each failover takes seconds: a run of chaos shows it.
@pytest.mark.parametrize("name", ["redis", "wait", "cluster"])
async def test_every_fault_to_the_store_is_recorded_and_healed(name: str, tmp_path: Path) -> None:
    history = History()
    async with STORES[name](tmp_path) as setup:
        faults = store_faults(setup, history, Hasty(1))
        assert faults is not None
        for fault in dict.fromkeys(faults.deck()):
            await fault()
            await asyncio.to_thread(until, lambda: takes_writes(setup), 5)
    kinds = {fault.kind for fault in history.faults}
    assert kinds - NETWORK == OWN[name]
    assert all(fault.at < fault.ended_at for fault in history.faults)
    assert {fault.target for fault in history.faults} <= {"network", "store"}


def test_what_a_kind_of_fault_allows_is_said_of_kinds_that_there_are() -> None:
    elsewhere = {"step the store's clock", "agent away", "platform away", "kill", "poison"}
    assert ALLOWED.keys() <= set().union(*OWN.values()) | elsewhere


async def test_wiping_the_index_leaves_the_rest(tmp_path: Path) -> None:
    async with redis(tmp_path) as setup:
        with Redis.from_url(setup.url) as client:
            await asyncio.to_thread(client.mset, {"turntake:{s1}:due": 1, "turntake:{s12}:due": 1, "turntake:meta": 1})
            await asyncio.to_thread(setup.wipe_index)
            assert await asyncio.to_thread(client.keys) == [b"turntake:meta"]
