"""The file itself: who may read it, what is left of what was forgotten, and which files are refused."""

import os
import shutil
import stat
from pathlib import Path

import apsw
import pytest

from harness.writing import key
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.rules.conversation import Answered
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, OFF, say

SECRET = "the word that nobody else may read"


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def make_public(path: str) -> None:
    Path(path).touch()
    os.chmod(path, 0o644)


def contents(path: str) -> bytes:
    return Path(path).read_bytes()


def files_of(path: str) -> list[Path]:
    return [file for file in (Path(path + suffix) for suffix in ("", "-wal", "-shm")) if file.exists()]


async def test_nobody_else_can_read_a_new_file_or_its_companions(path: str, clock: VirtualClock) -> None:
    """Whatever the process's own mask allows: conversations are private."""
    mask = os.umask(0)
    try:
        async with SqliteStore(path, clock) as store:
            await say(store, "m1")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in files_of(path)}
    finally:
        os.umask(mask)
    assert modes == {"turntake.db": 0o600, "turntake.db-wal": 0o600, "turntake.db-shm": 0o600}


async def test_a_file_that_everybody_can_read_is_named_at_the_start_and_left_as_it_is(
    path: str, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody may have wanted it so."""
    make_public(path)
    async with SqliteStore(path, clock):
        (record,) = [record for record in caplog.records if "Everybody" in record.message]
        assert vars(record)["remedy"] == f"chmod 600 {path}*"
        assert mode(path) == 0o644
    caplog.clear()
    os.chmod(path, 0o640)
    async with SqliteStore(path, clock):
        assert caplog.text == ""


async def test_nothing_of_a_forgotten_turn_is_left_in_any_file(path: str, clock: VirtualClock) -> None:
    """Neither in the database nor in its log, while the store is open; what is not forgotten stays."""
    async with SqliteStore(path, clock) as store:
        for first in range(0, 300, 100):
            arrivals = [Append(key(n), Message(f"m{n}", f"{SECRET} {n} " * 5), OFF) for n in range(first, first + 100)]
            await store.append(arrivals)
            for claim in await store.claim(100, LEASE_MS):
                await store.settle(claim, Answered((f"{SECRET}, said again",)))
        assert any(SECRET.encode() in file.read_bytes() for file in files_of(path))
        await clock.advance(1)
        while await store.history.forget(clock.now()):
            pass
        assert [file.name for file in files_of(path) if SECRET.encode() in file.read_bytes()] == []
        await say(store, "kept")


async def test_another_programs_database_is_refused_and_left_alone(path: str, clock: VirtualClock) -> None:
    """Ours would have been made beside its tables."""
    connection = apsw.Connection(path)
    connection.execute("CREATE TABLE invoices (id); CREATE TABLE customers (id)")
    connection.close()
    before = contents(path)
    refusal = r"turntake\.db is the database of another program \(tables: customers, invoices\): choose another --store"
    with pytest.raises(ConfigurationError, match=refusal):
        await SqliteStore(path, clock).__aenter__()
    assert contents(path) == before
    (finding, *_) = [finding async for finding in SqliteStore.examine(f"sqlite:///{path}", clock)]
    assert (finding.level, "another program" in finding.text) == ("fail", True)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("missing/t.db", r"there is no folder \S+/missing: mkdir -p \S+/missing, or choose another --store"),
        (".", r"is a folder; name a file in it"),
        ("text.db", r"is no SQLite file, or an encrypted one: choose another --store"),
    ],
)
async def test_a_file_that_does_not_open_comes_with_its_remedy(
    tmp_path: Path, clock: VirtualClock, name: str, remedy: str
) -> None:
    """SQLite only says that it is unable to open it."""
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(ConfigurationError, match=f"Cannot open.*{remedy}"):
        await SqliteStore(str(tmp_path / name), clock).__aenter__()


async def test_a_store_whose_disk_is_full_is_not_ready(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading goes on, but no message would be taken."""
    async with SqliteStore.open(f"sqlite:///{path}", clock) as store:
        await store.check()
        usage = shutil.disk_usage(Path(path).parent)._replace(free=1_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
        with pytest.raises(StoreUnavailable, match="The disk is full: make room"):
            await store.check()
