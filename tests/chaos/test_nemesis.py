"""Each fault is recorded with its end, and leaves a store that answers."""

import asyncio
import random
from pathlib import Path

from redis import Redis

from chaos.fleet import Fleet
from chaos.history import History
from chaos.nemesis import Nemesis
from chaos.stores import Setup, redis

KINDS = {
    "cut": "network",
    "blackhole": "network",
    "lose requests": "network",
    "lose replies": "network",
    "delay": "network",
    "drop replies": "network",
    "restart store": "store",
    "kill store": "store",
    "sever": "store",
}


def ask(setup: Setup) -> bool:
    with Redis.from_url(setup.url, socket_timeout=5) as client:
        return bool(client.ping())


async def test_every_fault_to_the_store_is_recorded_and_healed(tmp_path: Path) -> None:
    history = History()
    async with redis(tmp_path) as setup:
        nemesis = Nemesis(Fleet([]), setup, history, random.Random(1), lease_s=0.1)
        for fault in dict.fromkeys(nemesis.store_faults()):
            await fault()
            assert await asyncio.to_thread(ask, setup), f"nothing answers after {history.faults[-1].kind}"
    assert {fault.kind for fault in history.faults} <= KINDS.keys()
    assert len(history.faults) == 8
    assert all(KINDS[fault.kind] == fault.target and fault.at < fault.ended_at for fault in history.faults)


async def test_wiping_the_index_leaves_the_rest(tmp_path: Path) -> None:
    async with redis(tmp_path) as setup:
        server = setup.server
        assert server is not None
        with Redis.from_url(setup.url) as client:
            await asyncio.to_thread(client.mset, {"turntake:{s1}:due": 1, "turntake:{s12}:due": 1, "turntake:meta": 1})
            await asyncio.to_thread(setup.wipe_index)
            assert await asyncio.to_thread(client.keys) == [b"turntake:meta"]
