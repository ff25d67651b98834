"""Each kind of store, empty: what asks for `store` runs on all of them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from harness.databases import Postgres, Valkey
from turntake.buffer.memory import MemoryStore
from turntake.buffer.postgres.backend import PostgresStore
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.buffer.store import Store
from turntake.testing.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("postgres"), is_safe=False) as server:
        yield server


@pytest.fixture
def memory_store(clock: VirtualClock) -> Store:
    return MemoryStore(clock)


@pytest.fixture
def sqlite_store(clock: VirtualClock, tmp_path: Path) -> Store:
    return SqliteStore(str(tmp_path / "turntake.db"), clock)


@pytest.fixture
def redis_store(clock: VirtualClock, valkey: Valkey) -> Store:
    valkey.ask("FLUSHALL")
    return RedisStore.open(valkey.url, clock)


@pytest.fixture
def postgres_store(clock: VirtualClock, postgres: Postgres) -> Store:
    return PostgresStore.open(postgres.database("traps"), clock)


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """An empty store of each kind; only those asked for have their server started."""
    opened: Store = request.getfixturevalue(f"{request.param}_store")
    async with opened as store:
        yield store
