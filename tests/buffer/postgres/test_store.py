"""The PostgreSQL store: the contract, the machine, its schema, its clock and what the doctor finds."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from psycopg import AsyncConnection

from harness.databases import Postgres
from harness.histories import scaled
from turntake.buffer.postgres import schema
from turntake.buffer.postgres.schema import Migration, applied, migrate, migrations
from turntake.buffer.postgres.store import PostgresStore
from turntake.buffer.postgres.url import Address
from turntake.clock import SystemClock
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.finding import Finding
from turntake.rules.conversation import Answered
from turntake.testing.clock import START, VirtualClock
from turntake.testing.store_contract import BOB, LEASE_MS, OFF, StoreContract, ids_of, say, take
from turntake.testing.store_machine import OpenStore, StoreMachine

EMPTIED = "TRUNCATE turntake.conversations, turntake.messages, turntake.turns; UPDATE turntake.clock SET seen_at = 0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("postgres"), is_safe=False) as server:
        yield server


@pytest.fixture
def url(server: Postgres) -> str:
    empty(server.url)
    return server.url


def empty(url: str) -> None:
    """Emptying tables is much faster than making them."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT to_regclass('turntake.clock') IS NOT NULL").fetchone()
        if found and found[0]:
            connection.execute(EMPTIED)


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def open_store(self, clock: VirtualClock, url: str) -> OpenStore:
        return lambda: PostgresStore.open(url, clock)


@pytest.mark.timeout(600 + scaled(600))
def test_postgres_answers_like_the_model(server: Postgres) -> None:
    """Over random lives, through crashes and reopenings, every answer is the model's."""

    class PostgresMachine(StoreMachine):
        def opener(self, clock: VirtualClock, resources: ExitStack) -> OpenStore:
            empty(server.url)
            return lambda: PostgresStore.open(server.url, clock)

    lives = settings(max_examples=scaled(300), stateful_step_count=40, deadline=None)
    run_state_machine_as_test(PostgresMachine, settings=lives)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def new(server: Postgres) -> str:
    """The URL of a database that nobody used yet."""
    return server.database("fresh")


def ask(url: str, query: str, *parameters: object) -> list[Any]:
    """Asked beside the store, by another client."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []


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


def test_a_url_gives_libpq_all_but_the_schema() -> None:
    address = Address.of("postgresql://ann:secret@db:6432/shop?schema=turns_2&sslmode=require&connect_timeout=9")
    assert address.schema == "turns_2"
    for part in ("user=ann", "host=db", "port=6432", "dbname=shop", "sslmode=require", "connect_timeout=9"):
        assert part in address.conninfo


@pytest.mark.parametrize(
    "url",
    [
        "mysql://db",
        "postgresql://ann:secret@db/shop?schema=Turns",
        "postgresql://ann:secret@db/shop?schema=a%20b",
        "postgresql://ann:secret@db/shop?nonsense=1",
        "postgresql://ann:secret@db/shop?schema=pg_turns",
        "postgresql://ann:my[secret@db/shop",
        "postgresql://ann:my@secret@db/shop",
        "postgresql://ann:my@sec/ret@db/shop",
        "postgresql://ann:1/secret@db/shop",
        "postgresql://ann:1#secret@db/shop",
        "postgresql://ann:my?secret@db/shop",
    ],
)
def test_a_url_that_cannot_be_right_is_refused_and_not_quoted(url: str, clock: VirtualClock) -> None:
    with pytest.raises(ConfigurationError) as refused:
        PostgresStore.open(url, clock)
    assert "secret" not in str(refused.value)
    assert "sec/ret" not in str(refused.value)


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
    pool = store.shelf._pool._pool  # type: ignore[attr-defined]
    open_pool = pool.open

    async def open_and_stop() -> None:
        await open_pool()
        raise asyncio.CancelledError

    monkeypatch.setattr(pool, "open", open_and_stop)
    with pytest.raises(asyncio.CancelledError):
        await store.__aenter__()
    assert pool.closed


async def test_a_clock_that_follows_goes_by_the_servers(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the store opens, at every write, for some only accept, and at every look at the next deadline.

    One that tests move by hand does not.
    """
    clock, hand = SystemClock(), VirtualClock()
    told: list[int] = []
    monkeypatch.setattr(clock, "follow", told.append)
    monkeypatch.setattr(hand, "follow", lambda at: pytest.fail("it follows nobody"))
    async with PostgresStore.open(url, clock) as store, PostgresStore.open(url, hand) as other:
        await say(store, "m1")
        await say(other, "m2")
        assert len(told) == 2
        await store.next_due()
        await other.next_due()
    assert len(told) == 3
    assert all(abs(at - clock.now()) < 10_000 for at in told)


@pytest.mark.parametrize("is_accepting", [True, False])
async def test_processes_of_an_older_later_time_and_new_ones_meet(url: str, is_accepting: bool) -> None:
    """As after a failover to a server whose clock is behind: the old ones go on as before."""
    old_clock, new_clock = SystemClock(), SystemClock()
    async with PostgresStore.open(url, old_clock) as old, PostgresStore.open(url, new_clock) as new:
        old_clock.not_before(old_clock.now() + 10_000)
        await say(old, "m1")
        assert old_clock.now() - new_clock.now() > 9_000
        if is_accepting:
            await say(new, "m2")
        else:
            await new.next_due()
        assert old_clock.now() - new_clock.now() < 1_000


async def test_nobody_goes_by_a_process_that_is_only_a_little_ahead(url: str) -> None:
    """It drifted, and comes back by itself; if all went by each other, nobody would."""
    fast, right = SystemClock(), SystemClock()
    async with PostgresStore.open(url, fast) as one, PostgresStore.open(url, right) as other:
        fast.not_before(fast.now() + 200)
        await say(one, "m1")
        await say(other, "m2")
        await other.next_due()
        assert fast.now() - right.now() > 100


async def test_time_never_goes_back_behind_what_the_store_saw(url: str, clock: VirtualClock) -> None:
    """It is noted about once a second, and only by those who did something."""
    noted = "SELECT seen_at FROM turntake.clock"
    async with PostgresStore.open(url, clock) as store:
        await clock.advance(5_000)
        await store.next_due()
        assert ask(url, noted) == [(0,)]
        await say(store, "m1")
        assert ask(url, noted) == [(START + 5_000,)], "some only accept"
        await clock.advance(999)
        await say(store, "m2")
        await store.next_due()
        assert ask(url, noted) == [(START + 5_000,)]
        await clock.advance(1_000)
        assert (await say(store, "m1")).status == "duplicate"
        assert ask(url, noted) == [(START + 5_000,)], "nothing was written"
        await clock.advance(3_600_000)
        await store.next_due()
    late = VirtualClock()
    async with PostgresStore.open(url, late):
        assert late.now() == clock.now()


async def test_an_idle_look_is_one_statement_that_writes_nothing(url: str, clock: VirtualClock) -> None:
    """An idle worker sends nothing but that, once a second."""
    async with PostgresStore.open(url, clock) as store:
        await say(store, "m1")
        await store.next_due()
        sent: list[bytes] = []
        pool = store.shelf._pool  # type: ignore[attr-defined]
        fetch = pool.fetch

        async def count(query: bytes, parameters: Any = ()) -> list[Any]:
            sent.append(query)
            return await fetch(query, parameters)  # type: ignore[no-any-return]

        pool.fetch = count
        for _ in range(3):
            await clock.advance(1_000)
            await store.next_due()
    assert len(sent) == 3
    assert all(query.startswith(b"SELECT") for query in sent)


async def test_rebuild_mends_the_copies_from_the_bodies(url: str, clock: VirtualClock) -> None:
    """Deadlines come back from the conversations alone, and doing it again is harmless."""
    async with PostgresStore.open(url, clock) as store:
        await say(store, "m1", rules=OFF)
        await say(store, "m1", key=BOB, rules=OFF)
        _, bob = await store.claim(2, LEASE_MS)
        await store.settle(bob, Answered())
        await say(store, "m2", key=BOB)
        columns = "SELECT key, state, due_at, open_from FROM turntake.conversations ORDER BY key"
        right = ask(url, columns)
        assert await store.rebuild() == 0
        ask(url, "UPDATE turntake.conversations SET due_at = NULL, state = 'idle', open_from = 77")
        assert await store.next_due() is None
        assert await store.rebuild() == 2
        assert ask(url, columns) == right
        assert await store.rebuild() == 0


async def findings(url: str) -> list[Finding]:
    return [finding async for finding in PostgresStore.examine(url, SystemClock())]


def says(found: list[Finding], about: str, mark: str = "") -> str:
    return " ".join(finding.text for finding in found if finding.subject == about and mark in ("", finding.level))


async def test_the_doctor_looks_a_new_database_over_and_changes_nothing(new: str) -> None:
    found = await findings(new)
    assert says(found, "schema", "ok") == "turntake will be created at the next start"
    assert "fsync, full_page_writes off" in says(found, "durability", "warn")
    assert not [finding for finding in found if finding.level == "fail"]
    assert ask(new, "SELECT to_regnamespace('turntake')") == [(None,)]


async def test_the_doctor_sees_bloat_snapshots_connections_and_the_clock(new: str, clock: VirtualClock) -> None:
    """What an operator must know before it hurts."""
    async with PostgresStore.open(new, clock) as store:
        await say(store, "m1")
    with psycopg.connect(new) as old:
        old.execute("SELECT 1")
        found = await findings(new)
    assert says(found, "schema", "ok") == f"turntake is at {migrations()[-1].name}"
    assert "conversations: " in says(found, "bloat", "ok")
    assert "messages: " in says(found, "bloat", "ok")
    assert "the longest open transaction is 0 s old" in says(found, "snapshots", "ok")
    assert " of 200 in use" in says(found, "connections", "ok")
    assert "server's clock" in says(found, "clock", "ok")


async def test_the_doctor_warns_of_old_snapshots_and_full_servers(
    new: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limits brought down to what a test can reach."""
    for name, value in (("LONG_S", -1), ("CONNECTIONS_FEW", 0.0), ("DEAD_MANY", -2), ("OFFSET_MS", -1)):
        monkeypatch.setattr(f"turntake.buffer.postgres.examine.{name}", value)
    found = await findings(new)
    assert "dead rows pile up" in says(found, "snapshots", "warn")
    assert says(found, "connections", "warn")
    assert "goes by the server's" in says(found, "clock", "warn")


async def test_the_doctor_says_what_fails(new: str) -> None:
    """A server that is away, one that takes no writes, a URL that is wrong: findings, and never a password."""
    ask(new, "ALTER DATABASE fresh SET default_transaction_read_only = on")
    assert "nothing can be accepted" in says(await findings(new), "store", "fail")
    for bad in ("postgresql://ann:secret@127.0.0.1:1/shop", "postgresql://ann:secret@db/shop?schema=A"):
        (finding,) = await findings(bad)
        assert finding.level == "fail"
        assert "secret" not in finding.text
