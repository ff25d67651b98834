"""Files that are locked, read-only or on a full disk: nothing is acknowledged, and the store goes on afterwards."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from turntake.buffer.sqlite import commit_thread
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.buffer.sqlite.schema import connect
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import (
    ANN,
    LEASE_MS,
    OFF,
    open_ids,
    say,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


async def test_a_file_locked_by_another_is_unavailable_and_usable_afterwards(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is acknowledged while a backup tool or another process keeps the lock; later everything works."""
    monkeypatch.setattr(commit_thread, "BUSY_TIMEOUT_MS", 20)
    async with SqliteStore(path, clock) as store:
        await say(store, "m1", rules=OFF)
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


async def test_what_could_not_be_rolled_back_is_undone_before_the_next_batch(path: str, clock: VirtualClock) -> None:
    """Whoever comes next is not refused for it."""
    async with SqliteStore(path, clock) as store:
        writer = store.backend._writer
        denied = (apsw.SQLITE_TRANSACTION, "ROLLBACK")
        writer.authorizer = lambda action, name, *_: apsw.SQLITE_DENY if (action, name) == denied else apsw.SQLITE_OK
        with pytest.raises(StoreUnavailable):
            await store.backend._commits.run(lambda: writer.execute("SELECT * FROM nothing_of_that_name"))
        assert writer.in_transaction
        writer.authorizer = None
        assert (await say(store, "m1")).status == "buffered"


async def test_a_file_that_became_read_only_is_unavailable_and_usable_afterwards(
    path: str, clock: VirtualClock
) -> None:
    """Nothing is acknowledged, what was there can still be read, and writing resumes when it can."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m1")
        store.backend._writer.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreUnavailable, match="nothing was accepted"):
            await say(store, "m2")
        assert await open_ids(store) == ["m1"]
        store.backend._writer.execute("PRAGMA query_only = OFF")
        assert (await say(store, "m2")).waiting == 2


async def test_a_failing_read_says_that_the_store_is_unavailable(path: str, clock: VirtualClock) -> None:
    """A reader meets the same error as a writer, not the library's own."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m1")

        def fail(*_: object) -> bool:
            raise apsw.IOError("the disk is gone")

        connections = [each for each in apsw.connections() if each.filename == path]
        for connection in connections:
            connection.exec_trace = fail
        for read in (store.next_due, lambda: store.find(ANN), lambda: store.history.turns(ANN, 1)):
            with pytest.raises(StoreUnavailable):
                await read()
        for connection in connections:
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
