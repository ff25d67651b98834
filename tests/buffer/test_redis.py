"""The Redis store: the contract and the machine on Valkey, on a cluster of one node and one of three."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.databases import Cluster, Valkey
from tests.rules.histories import scaled
from turntake.buffer.redis.store import RedisStore
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import StoreContract
from turntake.testing.store_machine import OpenStore, StoreMachine

NODES = {"valkey": 0, "one-node cluster": 1, "cluster": 3}
HISTORIES = {"valkey": 300, "one-node cluster": 60, "cluster": 60}
prefixes = (f"p{number}" for number in itertools.count())


@pytest.fixture(scope="module", params=NODES)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running server of each kind."""
    folder, nodes = tmp_path_factory.mktemp("redis"), NODES[request.param]
    with Cluster(folder, nodes) if nodes else Valkey(folder) as server:
        yield f"{server.url}?shards={max(1, nodes)}"


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
    histories = HISTORIES[request.node.callspec.params["url"]]
    lives = settings(max_examples=scaled(histories), stateful_step_count=40, deadline=None)
    run_state_machine_as_test(RedisMachine, settings=lives)
