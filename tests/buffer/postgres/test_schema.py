"""Migrations and schemas: numbered, in two steps, and more than one in a database."""

import asyncio

import psycopg
import pytest
from psycopg import AsyncConnection

from harness.databases import Postgres
from harness.postgres_store import ask, findings, says
from turntake.buffer.postgres import schema
from turntake.buffer.postgres.backend import PostgresStore
from turntake.buffer.postgres.schema import Migration, applied, migrate, migrations
from turntake.errors import ConfigurationError
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, OFF, ids_of, say, take


async def names(url: str) -> list[str]:
    async with await AsyncConnection.connect(url) as connection:
        return await applied(connection, "turntake")


def test_migrations_are_numbered_without_gaps_and_say_when_they_run() -> None:
    """By the number they are ordered; by the second word they wait for the end of an upgrade or not."""
    parts = [migration.name.split("_") for migration in migrations()]
    assert [int(part[0]) for part in parts] == list(range(1, len(parts) + 1))
    assert {part[1] for part in parts} <= {"pre", "post"}


async def test_many_processes_that_start_at_once_migrate_once(new: str, clock: VirtualClock) -> None:
    """They wait for the first one, and find nothing left to do."""

    async def start() -> None:
        async with PostgresStore.open(new, clock):
            pass

    await asyncio.gather(*(start() for _ in range(8)))
    assert await names(new) == [migration.name for migration in migrations()]


def pretend(monkeypatch: pytest.MonkeyPatch, *more: Migration) -> None:
    """A later release with more migrations than this one."""
    known = [*migrations(), *more]
    monkeypatch.setattr(schema, "migrations", lambda: known)


PRE = Migration("0901_pre_more", "CREATE TABLE more (x int)")


POST = Migration("0902_post_less", "DROP TABLE more")


async def test_an_upgrade_has_two_steps_and_the_old_release_runs_through_the_first(
    new: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes something away waits for the operator, and from then on the old release is refused."""
    async with PostgresStore.open(new, clock) as old:
        with monkeypatch.context() as later:
            pretend(later, PRE, POST)
            async with PostgresStore.open(new, clock) as store:
                assert (await names(new))[-1] == PRE.name
                await say(old, "m1", rules=OFF)
                assert ids_of(await take(store)) == ["m1"]
        async with PostgresStore.open(new, clock) as again:
            await say(again, "m2")
        with monkeypatch.context() as later:
            pretend(later, PRE, POST)
            assert "finish the upgrade: 0902_post_less" in says(await findings(new), "schema")
            assert await old.finish_upgrade() == [POST.name]
            assert await old.finish_upgrade() == []
    with pytest.raises(ConfigurationError, match="0902_post_less"):
        await PostgresStore.open(new, clock).__aenter__()
    assert says(await findings(new), "schema", "fail").startswith("The database was upgraded to the end")


async def test_a_new_schema_needs_no_second_step(
    new: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing was, no older release can be at work."""
    pretend(monkeypatch, PRE, POST)
    async with PostgresStore.open(new, clock) as store:
        assert await store.finish_upgrade() == []


async def test_a_migration_that_fails_leaves_nothing_behind(new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a schema would be worse than none."""
    pretend(monkeypatch, Migration("0901_pre_broken", "CREATE TABLE clock (x int)"))
    async with await AsyncConnection.connect(new, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.DuplicateTable):
            await migrate(connection, "turntake")
    assert ask(new, "SELECT to_regnamespace('turntake')") == [(None,)]


async def test_a_schema_of_another_name_is_a_store_of_its_own(new: str, clock: VirtualClock) -> None:
    """Two in one database do not see each other."""
    async with (
        PostgresStore.open(new, clock) as one,
        PostgresStore.open(f"{new}?schema=other_one&application_name=shop", clock) as other,
    ):
        await say(one, "m1", rules=OFF)
        assert await other.claim(5, LEASE_MS) == []
        await say(other, "m1", rules=OFF)
        assert ids_of(await take(other)) == ["m1"]
    assert ask(new, "SELECT count(*) FROM other_one.turns") == [(1,)]


async def test_one_who_may_not_make_schemas_can_use_one(new: str, server: Postgres, clock: VirtualClock) -> None:
    """An operator made it for them."""
    ask(new, "DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN; CREATE SCHEMA turntake AUTHORIZATION clerk")
    async with PostgresStore.open(new.replace("postgres@", "clerk@"), clock) as store:
        await say(store, "m1")
