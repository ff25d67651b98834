"""The Redis store: the contract and the machine on Valkey, on a cluster of one node and one of three."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
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

SERVERS = ("valkey", "one-node cluster", "cluster")
prefixes = (f"p{number}" for number in itertools.count())


@pytest.fixture(scope="module", params=SERVERS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running server of each kind."""
    folder = tmp_path_factory.mktemp("redis")
    kinds = {
        "valkey": lambda: Valkey(folder),
        "one-node cluster": lambda: Cluster(folder, nodes=1),
        "cluster": lambda: Cluster(folder, nodes=3),
    }
    with kinds[request.param]() as server:
        yield server.url


class TestRedisStore(StoreContract):
    @pytest.fixture
    def open_store(self, clock: VirtualClock, url: str) -> OpenStore:
        mine = f"{url}?prefix={next(prefixes)}"
        return lambda: RedisStore.open(mine, clock)


class RedisMachine(StoreMachine):
    url: ClassVar[str]

    def opener(self, clock: VirtualClock, resources: ExitStack) -> OpenStore:
        mine = f"{self.url}?prefix={next(prefixes)}"
        return lambda: RedisStore.open(mine, clock)


@pytest.mark.timeout(600 + scaled(300))
def test_redis_answers_like_the_model(url: str) -> None:
    """Over random lives, through crashes and reopenings, every answer is the model's."""
    RedisMachine.url = url
    lives = settings(max_examples=scaled(300), stateful_step_count=40, deadline=None)
    run_state_machine_as_test(RedisMachine, settings=lives)
