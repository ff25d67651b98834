"""The Redis store: the contract and the machine on Valkey, on clusters of one and three nodes, and behind Sentinel."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from harness.databases import Cluster, Sentinel, Valkey
from harness.histories import scaled
from turntake.buffer.redis.backend import RedisStore
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import StoreContract
from turntake.testing.store_machine import OpenStore, StoreMachine

SERVERS: dict[str, Callable[[Path], Any]] = {
    "valkey": Valkey,
    "one-node cluster": lambda folder: Cluster(folder, 1),
    "cluster": lambda folder: Cluster(folder, 3),
    "sentinel": Sentinel,
}
SHARDS = {"cluster": 3}
HISTORIES = {"valkey": 300}
FEWER = 60
prefixes = (f"p{number}" for number in itertools.count())


@pytest.fixture(scope="module", params=SERVERS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running server of each kind."""
    with SERVERS[request.param](tmp_path_factory.mktemp("redis")) as server:
        yield f"{server.url}?shards={SHARDS.get(request.param, 1)}"


class TestRedisStore(StoreContract):
    @pytest.fixture
    def open_store(self, clock: VirtualClock, url: str) -> OpenStore:
        mine = f"{url}&prefix={next(prefixes)}"
        return lambda: RedisStore.open(mine, clock)


class RedisMachine(StoreMachine):
    url: ClassVar[str]

    def opener(self, clock: VirtualClock, resources: ExitStack) -> OpenStore:
        mine = f"{self.url}&prefix={next(prefixes)}"
        return lambda: RedisStore.open(mine, clock)


@pytest.mark.timeout(600 + scaled(300))
def test_redis_answers_like_the_model(url: str, request: pytest.FixtureRequest) -> None:
    """Over random lives, through crashes and reopenings, every answer is the model's."""
    RedisMachine.url = url
    histories = HISTORIES.get(request.node.callspec.params["url"], FEWER)
    lives = settings(max_examples=scaled(histories), stateful_step_count=40, deadline=None)
    run_state_machine_as_test(RedisMachine, settings=lives)
