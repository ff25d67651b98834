"""The SQLite store: the contract, the machine, and what a disk and a second process can do to it."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from harness.histories import scaled
from turntake.buffer.cursor import Cursor
from turntake.buffer.sqlite import reader, schema, writer
from turntake.buffer.sqlite.queries import SQL
from turntake.buffer.sqlite.schema import connect, migrate, migrations, network_file_system, schema_version
from turntake.buffer.sqlite.store import SqliteStore
from turntake.buffer.store import Query
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.rules.conversation import Answered, Dead, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.rules.rules import Rules
from turntake.rules.transitions import turn_id
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import (
    ANN,
    BOB,
    LEASE_MS,
    OFF,
    PLAIN,
    StoreContract,
    ids_of,
    open_ids,
    say,
    take,
)
from turntake.testing.store_machine import OpenStore, StoreMachine, conversations_by_pages

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def open_store(self, clock: VirtualClock, tmp_path: Path) -> OpenStore:
        return lambda: SqliteStore(str(tmp_path / "turntake.db"), clock)


class SqliteMachine(StoreMachine):
    def opener(self, clock: VirtualClock, resources: ExitStack) -> OpenStore:
        folder = resources.enter_context(tempfile.TemporaryDirectory())
        return lambda: SqliteStore(f"{folder}/turntake.db", clock)


@pytest.mark.timeout(600 + scaled(300))
def test_sqlite_answers_like_the_model() -> None:
    """Over random lives, through crashes and reopenings, every answer is the model's."""
    lives = settings(max_examples=scaled(300), stateful_step_count=40, deadline=None)
    run_state_machine_as_test(SqliteMachine, settings=lives)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "turntake.db")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_migrations_apply_from_nothing_and_only_once(path: str, clock: VirtualClock) -> None:
    """A new file gets the latest schema, and opening it again changes nothing."""
    for _ in range(2):
        async with SqliteStore(path, clock) as store:
            await say(store, "m1")
    connection = connect(path)
    assert schema_version(connection) == migrations()[-1][0]
    connection.close()


def test_migrations_are_numbered_without_gaps() -> None:
    """The number is the schema's version."""
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


async def test_a_later_schema_is_refused_and_left_alone(path: str, clock: VirtualClock) -> None:
    """A file from a newer release is not guessed at."""
    connection = connect(path)
    connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigurationError, match="schema 99"):
        await SqliteStore(path, clock).__aenter__()
    assert schema_version(connection) == 99
    assert not connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()


def test_a_migration_that_fails_leaves_nothing_behind(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a schema would be worse than none."""
    connection = connect(path)
    broken = [(1, "CREATE TABLE half (x)"), (2, "CREATE TABLE half (x)")]
    monkeypatch.setattr(schema, "migrations", lambda: broken)
    with pytest.raises(apsw.SQLError):
        migrate(connection)
    assert schema_version(connection) == 0
    assert not connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "turntake.db"])
def test_a_url_without_a_file_is_refused(url: str, clock: VirtualClock) -> None:
    """A buffer that vanishes with the process is not what somebody asks SQLite for."""
    with pytest.raises(ConfigurationError, match="sqlite:///path"):
        SqliteStore.open(url, clock)


def test_a_url_names_a_relative_or_an_absolute_file(clock: VirtualClock) -> None:
    """Three slashes, or four."""
    assert SqliteStore.open("sqlite:///turntake.db", clock).path == "turntake.db"
    assert SqliteStore.open("sqlite:////var/t.db", clock).path == "/var/t.db"


async def test_a_file_that_cannot_be_opened_is_a_configuration_error(tmp_path: Path, clock: VirtualClock) -> None:
    """A missing folder, and a file that is no database, are said at the start."""
    (tmp_path / "text.db").write_text("no database " * 100)
    for bad in ("missing/t.db", "text.db"):
        with pytest.raises(ConfigurationError, match="Cannot open"):
            await SqliteStore(str(tmp_path / bad), clock).__aenter__()


@pytest.mark.parametrize(
    ("place", "kind"), [("/data/t.db", "nfs4"), ("/data/local/t.db", None), ("/t.db", None), ("/database/t.db", None)]
)
def test_network_file_systems_are_known_by_their_mount(place: str, kind: str | None) -> None:
    """The innermost mount decides."""
    mounts = "/dev/a / ext4 rw 0 0\nhost:/x /data nfs4 rw 0 0\n/dev/b /data/local xfs rw 0 0\n"
    assert network_file_system(Path(place), mounts) == kind


async def test_a_network_file_system_is_refused(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write-ahead log would lose data there."""
    monkeypatch.setattr("turntake.buffer.sqlite.store.network_file_system", lambda path, mounts: "nfs4")
    with pytest.raises(ConfigurationError, match="network file system"):
        await SqliteStore(path, clock).__aenter__()


def count_commits(store: SqliteStore) -> list[int]:
    """One entry for each transaction from here on."""
    commits: list[int] = []

    def count() -> bool:
        commits.append(1)
        return False

    store._connection.set_commit_hook(count)
    return commits


async def test_concurrent_appends_share_their_transactions(path: str, clock: VirtualClock) -> None:
    """Two hundred appends that wait together take a handful of commits."""
    async with SqliteStore(path, clock) as store:
        commits = count_commits(store)
        await asyncio.gather(*(say(store, "m1", key=ConversationKey.of(f"c{n}")) for n in range(200)))
        assert 1 <= len(commits) <= 5
        assert len((await store.history.conversations(Query(limit=300))).items) == 200


async def test_more_than_one_batch_of_operations_waits_its_turn(path: str, clock: VirtualClock) -> None:
    """A crowd beyond the largest batch is served in several transactions, none of them lost."""
    async with SqliteStore(path, clock) as store:
        count = writer.LARGEST_BATCH * 2 + 1
        answers = await asyncio.gather(*(say(store, f"m{n}", rules=Rules(capacity=9_999)) for n in range(count)))
        assert sorted(answer.waiting for answer in answers) == list(range(1, count + 1))


async def test_operations_of_one_transaction_see_each_other(path: str, clock: VirtualClock) -> None:
    """A message, a claim and a settlement that share a commit act as if each had come alone."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m0", key=BOB, rules=OFF)
        bob = await take(store)
        _, claims, settled, again, none = await asyncio.gather(
            say(store, "m1", rules=OFF),
            store.claim(5, LEASE_MS),
            store.settle(bob, Answered()),
            say(store, "m1"),
            store.claim(5, LEASE_MS),
        )
        assert [ids_of(claim) for claim in claims] == [["m1"]]
        assert settled
        assert again.status == "duplicate"
        assert none == []


async def test_a_letter_made_and_retried_in_one_transaction_is_found(path: str, clock: VirtualClock) -> None:
    """The conversation need not have been written before."""
    async with SqliteStore(path, clock) as store:
        commits = count_commits(store)
        _, _, conversation = await asyncio.gather(
            say(store, "m1"), store.touch(ANN, Touch("clear"), PLAIN), store.letters.retry(turn_id(ANN, 1, 1))
        )
        assert conversation is not None
        assert await open_ids(store) == ["m1"]
        assert len(commits) == 1


async def test_a_message_that_cannot_be_stored_does_not_fail_its_neighbours(path: str, clock: VirtualClock) -> None:
    """One caller's mistake in a shared transaction is that caller's alone."""
    async with SqliteStore(path, clock) as store:
        bad = Message("bad", metadata={"too big": 2**70})
        answers = await asyncio.gather(
            say(store, "m1"), store.append([Append(ANN, bad, PLAIN)]), say(store, "m2"), return_exceptions=True
        )
        assert isinstance(answers[1], OverflowError)
        assert not isinstance(answers[0], BaseException)
        assert not isinstance(answers[2], BaseException)
        assert await open_ids(store) == ["m1", "m2"]


async def test_a_call_is_all_or_nothing(path: str, clock: VirtualClock) -> None:
    """A webhook of two messages, one of which cannot be stored, stores none."""
    async with SqliteStore(path, clock) as store:
        bad = Message("bad", metadata={"too big": 2**70})
        with pytest.raises(OverflowError):
            await store.append([Append(ANN, Message("m1"), PLAIN), Append(ANN, bad, PLAIN)])
        assert await store.find(ANN) is None


async def test_a_caller_who_gave_up_does_not_stop_the_others(path: str, clock: VirtualClock) -> None:
    """A cancelled request leaves the shared transaction alone."""
    async with SqliteStore(path, clock) as store:
        impatient = asyncio.ensure_future(say(store, "m1"))
        patient = asyncio.ensure_future(say(store, "m2"))
        await asyncio.wait([impatient], timeout=0)
        impatient.cancel()
        assert (await patient).status == "buffered"
        assert await open_ids(store) == ["m1", "m2"]


async def test_closing_waits_for_what_is_under_way(path: str, clock: VirtualClock) -> None:
    """An append that was asked for before the end is answered before the end."""
    async with SqliteStore(path, clock) as store:
        pending = asyncio.ensure_future(say(store, "m1"))
        await asyncio.wait([pending], timeout=0)
    assert (await pending).status == "buffered"


async def test_a_file_locked_by_another_is_unavailable_and_usable_afterwards(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is acknowledged while a backup tool or another process keeps the lock; later everything works."""
    monkeypatch.setattr(writer, "BUSY_TIMEOUT_MS", 20)
    async with SqliteStore(path, clock) as store:
        await say(store, "m1")
        other = connect(path)
        other.execute("BEGIN IMMEDIATE")
        results = await asyncio.gather(say(store, "m2"), store.claim(1, LEASE_MS), return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable]
        assert await open_ids(store) == ["m1"]
        other.execute("ROLLBACK")
        other.close()
        assert (await say(store, "m2")).waiting == 2


async def test_a_short_lock_is_waited_for(path: str, clock: VirtualClock) -> None:
    """Another process's commit delays a message and does not refuse it."""
    async with SqliteStore(path, clock) as store:
        other = connect(path)
        other.execute("BEGIN IMMEDIATE")
        pending = asyncio.ensure_future(say(store, "m1"))
        await asyncio.wait([pending], timeout=0)
        other.execute("COMMIT")
        other.close()
        assert (await pending).status == "buffered"


async def test_a_file_that_became_read_only_is_unavailable_and_usable_afterwards(
    path: str, clock: VirtualClock
) -> None:
    """Nothing is acknowledged, what was there can still be read, and writing resumes when it can."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m1")
        store._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreUnavailable, match="nothing was accepted"):
            await say(store, "m2")
        assert await open_ids(store) == ["m1"]
        store._connection.execute("PRAGMA query_only = OFF")
        assert (await say(store, "m2")).waiting == 2


async def test_a_commit_that_fails_acknowledges_nothing(path: str, clock: VirtualClock) -> None:
    """Only what is on disk is answered; the store goes on with the next transaction."""
    async with SqliteStore(path, clock) as store:
        store._connection.set_commit_hook(lambda: True)
        with pytest.raises(StoreUnavailable):
            await say(store, "m1")
        store._connection.set_commit_hook(None)
        assert await store.find(ANN) is None
        assert (await say(store, "m1")).status == "buffered"


async def test_a_failing_read_says_that_the_store_is_unavailable(path: str, clock: VirtualClock) -> None:
    """A reader meets the same error as a writer, not the library's own."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m1")

        def fail(*_: object) -> bool:
            raise apsw.IOError("the disk is gone")

        for connection in (store._reader.connection, store._lister.connection):
            connection.exec_trace = fail
        for read in (store.next_due, lambda: store.find(ANN), lambda: store.history.turns(ANN, 1)):
            with pytest.raises(StoreUnavailable):
                await read()
        for connection in (store._reader.connection, store._lister.connection):
            connection.exec_trace = None
        assert await open_ids(store) == ["m1"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def remount(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", disk], check=True)


@needs_root
async def test_a_full_disk_is_unavailable_and_usable_afterwards(small_disk: Path, clock: VirtualClock) -> None:
    """Every message acknowledged before is there, none since was acknowledged, and freed space is used."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    acknowledged: list[str] = []
    async with SqliteStore(str(small_disk / "turntake.db"), clock) as store:

        async def fill() -> None:
            for number in range(1_000):
                message = Message(f"m{number}", "x" * 10_000)
                await store.append([Append(ANN, message, Rules(capacity=9_999))])
                acknowledged.append(message.id)

        with pytest.raises(StoreUnavailable):
            await fill()
        assert await open_ids(store) == acknowledged
        ballast.unlink()
        await say(store, "afterwards")
    async with SqliteStore(str(small_disk / "turntake.db"), clock) as store:
        assert await open_ids(store) == [*acknowledged, "afterwards"]


@needs_root
async def test_a_read_only_disk_is_refused_at_the_start(small_disk: Path, clock: VirtualClock) -> None:
    """A store that cannot write does not open, and opens once it can."""
    file = str(small_disk / "turntake.db")
    async with SqliteStore(file, clock) as store:
        await say(store, "m1")
    remount(small_disk, "ro")
    with pytest.raises(ConfigurationError, match="Cannot open"):
        await SqliteStore(file, clock).__aenter__()
    remount(small_disk, "rw")
    async with SqliteStore(file, clock) as store:
        assert await open_ids(store) == ["m1"]


async def test_two_stores_on_one_file_keep_the_promises(path: str, clock: VirtualClock) -> None:
    """Two processes take turns message by message: numbers have no holes, ids are known, claims are fenced."""
    async with SqliteStore(path, clock) as one, SqliteStore(path, clock) as other:
        for number in range(10):
            await say(one if number % 2 else other, f"m{number}")
        assert (await say(one, "m0")).status == "duplicate"
        await clock.advance(30_000)
        claim = await take(other)
        assert [message.seq for message in claim.messages] == list(range(1, 11))
        assert await one.claim(5, LEASE_MS) == []
        await say(one, "late")
        assert await one.settle(claim, Answered())
        assert await other.settle(claim, Answered())
        assert await open_ids(other) == ["late"]


async def test_two_stores_on_one_file_at_once_lose_nothing_and_claim_once(path: str, clock: VirtualClock) -> None:
    """Two processes write and claim at the same time."""
    keys = [ConversationKey.of(f"c{number}") for number in range(20)]
    async with SqliteStore(path, clock) as one, SqliteStore(path, clock) as other:
        for store in (one, other):
            await store.next_due()
        await asyncio.gather(*(say(store, f"{n}", key=key) for key in keys for n, store in enumerate((one, other))))
        await clock.advance(30_000)
        claims = await asyncio.gather(*(store.claim(3, LEASE_MS) for store in (one, other) for _ in range(10)))
        taken = [claim for some in claims for claim in some]
        assert sorted(str(claim.key) for claim in taken) == sorted(map(str, keys))
        assert all(sorted(ids_of(claim)) == ["0", "1"] for claim in taken)


async def test_what_a_killed_process_leaves_is_complete(path: str, clock: VirtualClock, tmp_path: Path) -> None:
    """The files as they are at that moment, never closed, hold every answer that was given."""
    remains = tmp_path / "remains"
    remains.mkdir()
    async with SqliteStore(path, clock) as store:
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await say(store, "m2")
        for suffix in ("", "-wal"):
            shutil.copy(path + suffix, remains / f"turntake.db{suffix}")
    async with SqliteStore(str(remains / "turntake.db"), clock) as recovered:
        assert await open_ids(recovered) == ["m1", "m2"]
        await clock.advance(LEASE_MS)
        again = await take(recovered)
        assert (again.turn.id, again.messages) == (claim.turn.id, claim.messages)
        assert not await recovered.settle(claim, Answered())


async def test_a_store_that_was_never_closed_is_no_obstacle(path: str, clock: VirtualClock) -> None:
    """A successor opens the file beside a process that hangs, and fences it."""
    hanging = await SqliteStore(path, clock).__aenter__()
    await say(hanging, "m1", rules=OFF)
    stale = await take(hanging)
    async with SqliteStore(path, clock) as successor:
        await clock.advance(LEASE_MS)
        assert await successor.settle(await take(successor), Answered())
        assert not await hanging.settle(stale, Dead("late"))
        assert await open_ids(hanging) == []
    await hanging.__aexit__(None, None, None)


async def test_long_lists_are_read_in_several_steps(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that matches little still finds everything, however the table is cut."""
    monkeypatch.setattr(reader, "SCANNED_AT_ONCE", 2)
    async with SqliteStore(path, clock) as store:
        for number in range(7):
            tenant = "rare" if number in (3, 6) else "common"
            await say(store, "m1", key=ConversationKey.of(f"c{number}", tenant=tenant), rules=OFF)
        for claim in await store.claim(6, LEASE_MS):
            await store.settle(claim, Answered())
        rare = await conversations_by_pages(store, Query(tenant="rare", limit=1))
        assert [key.conversation for key, _ in rare] == ["c6", "c3"]
        assert len(await conversations_by_pages(store, Query(limit=3))) == 7
        assert len(await conversations_by_pages(store, Query(limit=1, state="collecting"))) == 1


async def test_one_that_is_answered_while_it_is_listed_is_listed_once(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was seen among those that are due, and then among the idle ones."""
    look = reader.SqliteReader._page
    async with SqliteStore(path, clock) as store:
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        loop = asyncio.get_running_loop()

        def page(self: reader.SqliteReader, query: Query, after: Cursor) -> object:
            found = look(self, query, after)
            if after == reader.START:
                asyncio.run_coroutine_threadsafe(store.settle(claim, Answered()), loop).result(5)
            return found

        monkeypatch.setattr(reader.SqliteReader, "_page", page)
        ((_, conversation),) = (await store.history.conversations(Query())).items
        assert conversation.state == "idle"


async def test_forgetting_a_lot_takes_several_calls(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call does a bounded part and says how much."""
    monkeypatch.setattr(reader, "FORGOTTEN_AT_ONCE", 2)
    async with SqliteStore(path, clock) as store:
        for number in range(3):
            await say(store, f"m{number}", rules=OFF)
            await store.settle(await take(store), Answered())
        await clock.advance(1)
        assert [await store.history.forget(clock.now()) for _ in range(3)] == [2, 1, 0]


async def test_deadlines_are_found_by_the_index(path: str, clock: VirtualClock) -> None:
    """Claiming and looking for the next deadline never scan the conversations."""
    async with SqliteStore(path, clock) as store:
        for name, bindings in (("due", (0, 1)), ("next_due", ())):
            plan = store._reader.connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", bindings).fetchall()
            steps = [str(row[3]) for row in plan if "TEMP B-TREE FOR LAST TERM" not in str(row[3])]
            assert all("conversations_due" in step for step in steps), plan
