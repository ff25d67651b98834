"""A store that cannot be opened: why, in words that help, and nothing left behind."""

import asyncio

import psycopg
import pytest

from harness.postgres_store import ask, findings
from turntake.buffer.postgres.backend import PostgresStore
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.testing.clock import VirtualClock


async def test_a_server_that_is_away_is_unavailable(clock: VirtualClock) -> None:
    """The address is right, and the server may come back; whoever starts a process sent nothing."""
    with pytest.raises(StoreUnavailable, match="cannot be used now") as refused:
        await PostgresStore.open("postgresql://ann:secret@127.0.0.1:1/shop", clock).__aenter__()
    assert "send it again" not in str(refused.value)


async def test_a_host_that_cannot_be_found_is_not_quoted(clock: VirtualClock) -> None:
    """It may be the rest of a password."""
    url = "postgresql://ann:my@secret.invalid/shop"
    with pytest.raises(StoreUnavailable, match=r"the host cannot be found; .* %40") as refused:
        await PostgresStore.open(url, clock).__aenter__()
    (finding,) = await findings(url)
    for says in (str(refused.value), finding.text):
        assert "secret" not in says


@pytest.mark.parametrize(
    "given",
    [
        "",
        "CREATE SCHEMA turntake",
        "CREATE SCHEMA turntake; GRANT USAGE ON SCHEMA turntake TO clerk",
    ],
)
async def test_missing_rights_are_told_with_what_to_do(new: str, clock: VirtualClock, given: str) -> None:
    """One may not create the schema, one may not look into it, one may not create anything there."""
    ask(new, f"DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN; {given}")
    with pytest.raises(ConfigurationError, match="CREATE SCHEMA turntake AUTHORIZATION"):
        await PostgresStore.open(new.replace("postgres@", "clerk@"), clock).__aenter__()


async def test_rights_on_the_tables_are_needed_too(new: str, clock: VirtualClock) -> None:
    """Another user made them."""
    async with PostgresStore.open(new, clock):
        ask(new, "DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN; GRANT ALL ON SCHEMA turntake TO clerk")
    with pytest.raises(ConfigurationError, match="GRANT"):
        await PostgresStore.open(new.replace("postgres@", "clerk@"), clock).__aenter__()


async def test_a_store_that_cannot_be_opened_leaves_nothing_running(new: str, clock: VirtualClock) -> None:
    async with PostgresStore.open(new, clock):
        pass
    ask(new, "DROP TABLE turntake.clock")
    before = asyncio.all_tasks()
    with pytest.raises(psycopg.errors.UndefinedTable):
        await PostgresStore.open(new, clock).__aenter__()
    assert asyncio.all_tasks() == before


async def test_a_pool_that_is_interrupted_while_it_opens_is_closed(
    url: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore.open(url, clock)
    pool = store.backend._pool._pool
    open_pool = pool.open

    async def open_and_stop() -> None:
        await open_pool()
        raise asyncio.CancelledError

    monkeypatch.setattr(pool, "open", open_and_stop)
    with pytest.raises(asyncio.CancelledError):
        await store.__aenter__()
    assert pool.closed
