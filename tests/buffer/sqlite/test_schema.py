"""Migrations, URLs and files: what is opened, and what is refused with a reason."""

import logging
from pathlib import Path

import apsw
import pytest

from turntake.buffer.codec import encode
from turntake.buffer.sqlite import schema
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.buffer.sqlite.schema import connect, migrate, migrations, network_file_system, schema_version
from turntake.errors import ConfigurationError
from turntake.rules.conversation import Conversation
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, say


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
    monkeypatch.setattr("turntake.buffer.sqlite.schema.network_file_system", lambda path, mounts: "nfs4")
    with pytest.raises(ConfigurationError, match="network file system"):
        await SqliteStore(path, clock).__aenter__()


# As the release before versions wrote a conversation, at the end of each transaction that changed one.
UNVERSIONED = """
INSERT INTO conversations (id, key, state, due_at, body) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, due_at = excluded.due_at, body = excluded.body
"""


async def test_a_release_without_versions_that_still_runs_cannot_write(path: str, clock: VirtualClock) -> None:
    """It opened the file before the upgrade. Whatever it changes is refused, with a new row and with an old one."""
    before = connect(path)
    before.execute(migrations()[0][1])
    before.execute("PRAGMA user_version = 1")
    row = (1, str(ANN), "idle", None, encode(Conversation(next_seq=3)))
    before.execute(UNVERSIONED, row)
    before.execute("INSERT INTO messages VALUES (1, 2, 'm0', 0, x'')")
    async with SqliteStore(path, clock) as store:
        for number in (1, 2):
            with pytest.raises(apsw.SQLError, match="no column named id"):
                before.execute(UNVERSIONED, (number, *row[1:]))
        assert (await say(store, "m1")).seq == 3
    before.close()


def test_a_file_of_before_is_migrated_aloud_and_a_new_one_silently(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """A large file takes seconds, and processes of the release before cannot write any more: the log says why."""
    before = connect(path)
    before.execute(migrations()[0][1])
    before.execute("PRAGMA user_version = 1")
    with caplog.at_level(logging.INFO, "turntake"):
        migrate(before)
        (record,) = caplog.records
        assert (record.message, vars(record)["schema"]) == (
            "The SQLite file is brought to a new schema",
            migrations()[-1][0],
        )
        migrate(before)
        new = connect(f"{path}.new")
        migrate(new)
    assert caplog.records == [record]
    before.close()
    new.close()


def test_a_file_with_tables_of_their_own_for_messages_becomes_one_tree(path: str) -> None:
    """Messages and ids follow their conversation; of a forgotten message only the id is left, until it is old."""
    connection = connect(path)
    for number, text in migrations()[:3]:
        connection.execute(text)
        connection.execute(f"PRAGMA user_version = {number}")
    for number in (1, 2):
        connection.execute("INSERT INTO conversations VALUES (?1, ?2, 7, 'idle', 5, x'01')", (number, f"c{number}"))
    messages = [(1, 3, "m3", 30, b"three", None), (1, 2, "m2", 20, b"", 40), (2, 1, "7", 10, b"one", None)]
    connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", messages)
    migrate(connection)
    assert connection.execute("SELECT * FROM conversations").fetchall() == [
        (1, 0, "c1", 7, "idle", 5, None, None, None, b"\x01"),
        (1, 3, None, None, None, None, "m3", 30, None, b"three"),
        (1, "m2", None, None, None, None, None, None, 40, None),
        (1, "m3", None, None, None, None, None, None, None, None),
        (2, 0, "c2", 7, "idle", 5, None, None, None, b"\x01"),
        (2, 1, None, None, None, None, "7", 10, None, b"one"),
        (2, "7", None, None, None, None, None, None, None, None),
    ]
    connection.close()


def test_a_migration_sorts_in_a_file_and_work_in_memory(path: str) -> None:
    """A large file does not fit into memory; and at work each page that a batch changes would go to a file first."""
    connection = connect(path)
    said: list[str] = []

    def note(cursor: object, statement: str, bindings: object) -> bool:
        said.append(statement)
        return True

    connection.exec_trace = note
    migrate(connection)
    begins, ends = said.index("BEGIN IMMEDIATE"), said.index("COMMIT")
    assert [said[begins - 1], said[ends + 1]] == ["PRAGMA temp_store = FILE", "PRAGMA temp_store = MEMORY"]
    connection.close()


def test_every_index_survives_the_migrations(path: str) -> None:
    """A table that is made anew loses its indexes."""
    connection = connect(path)
    migrate(connection)
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    of_conversations = {"conversations_key", "conversations_due", "conversations_closed"}
    assert of_conversations | {"turns_id", "turns_closed", "turns_letters"} <= names
    connection.close()


def test_conversations_of_which_earlier_releases_left_only_the_row_are_dropped(path: str) -> None:
    """They kept every row for ever. One that waits, or has a message or a turn, stays."""
    connection = connect(path)
    for number, text in migrations()[:2]:
        connection.execute(text)
        connection.execute(f"PRAGMA user_version = {number}")
    for number, due_at in ((1, None), (2, None), (3, None), (4, 5)):
        row = (number, f"c{number}", due_at, b"")
        connection.execute("INSERT INTO conversations VALUES (?1, ?2, 1, '', ?3, ?4)", row)
    connection.execute("INSERT INTO messages VALUES (2, 1, 'm1', 0, x'')")
    connection.execute("INSERT INTO turns (conversation, head, tail, id) VALUES (3, 1, 1, 'turn_1')")
    migrate(connection)
    assert [id for (id,) in connection.execute("SELECT number FROM conversations WHERE part = 0")] == [2, 3, 4]
    connection.close()
