"""What an acknowledgement by SQLite means: the commit is on the disk. While it closes, there is none."""

import asyncio
from pathlib import Path

import apsw
import pytest

from turntake import StoreUnavailable
from turntake.buffer.sqlite.store import SqliteStore
from turntake.clock import SystemClock
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import say

FULL = 2  # what SQLite calls `PRAGMA synchronous = FULL`: a commit returns after the log was synced


async def test_a_commit_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    """Every connection of an open store; with less, a machine that loses power loses what it acknowledged."""
    path = tmp_path / "turntake.db"
    async with SqliteStore(str(path), VirtualClock()) as store:
        await say(store, "m1")
        ours = [each for each in apsw.connections() if Path(each.filename) == path]
        assert ours
        for connection in ours:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA synchronous").fetchone() == (FULL,)


async def test_a_write_while_the_store_closes_is_refused(tmp_path: Path) -> None:
    """The thread that commits has ended: whoever comes now is told, and does not wait for ever."""
    async with SqliteStore(str(tmp_path / "t.db"), SystemClock()) as store:
        await store._writer.close()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(store.append([]), timeout=5)
