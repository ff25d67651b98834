"""A server for each file, and for each test a store that nobody used before."""

import gc
import itertools
import warnings
from collections.abc import AsyncIterator, Iterator

import pytest

from harness.databases import Valkey
from harness.proxy import Proxy, proxying
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.scripts import FORGET, RESERVE_DUE, SWAP
from turntake.testing.clock import VirtualClock

prefixes = (f"t{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("redis"), is_safe=False) as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def prefix() -> str:
    return next(prefixes)


@pytest.fixture
def url(server: Valkey, prefix: str) -> str:
    """A store that nobody used before."""
    return f"{server.url}?prefix={prefix}"


@pytest.fixture
async def store(url: str, clock: VirtualClock) -> AsyncIterator[RedisStore]:
    async with RedisStore.open(url, clock) as store:
        yield store


@pytest.fixture(scope="module", autouse=True)
def nothing_of_others_is_left() -> None:
    """What tests of other folders left open is not for the first test here to answer for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True)
def no_errors_are_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An exception that nobody ever looks at is logged when it is thrown away."""
    yield
    gc.collect()
    assert not [record for record in (*caplog.get_records("call"), *caplog.records) if record.name == "asyncio"]


# Replies that are lost: what was asked for has happened, and nobody is told.


@pytest.fixture
def proxy(server: Valkey) -> Iterator[Proxy]:
    with proxying(server.port) as proxy:
        yield proxy


@pytest.fixture
async def proxied_store(server: Valkey, proxy: Proxy, clock: VirtualClock) -> AsyncIterator[RedisStore]:
    """Through the proxy, on an empty server that knows the scripts: each write is one command and one reply."""
    server.ask("FLUSHALL")
    for script in (FORGET, SWAP, RESERVE_DUE):
        server.ask("SCRIPT", "LOAD", script._text)
    async with RedisStore.open(server.url.replace(str(server.port), str(proxy.port)), clock) as store:
        yield store
