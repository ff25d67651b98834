"""A server for each file, and for each test an empty store."""

from collections.abc import AsyncIterator, Iterator

import pytest

from harness.databases import Postgres
from harness.postgres_store import EMPTIED, ask, empty
from turntake.buffer.postgres.backend import PostgresStore
from turntake.testing.clock import VirtualClock


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("postgres"), is_safe=False) as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(server: Postgres, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    async with PostgresStore.open(server.url, clock) as store:
        ask(server.url, EMPTIED)
        yield store


@pytest.fixture
def url(server: Postgres) -> str:
    empty(server.url)
    return server.url


@pytest.fixture
def new(server: Postgres) -> str:
    """The URL of a database that nobody used yet."""
    return server.database("fresh")
