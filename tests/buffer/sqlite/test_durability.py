"""What an acknowledgement by SQLite means: the commit is on the disk."""

from pathlib import Path

import apsw

from turntake.buffer.sqlite.store import SqliteStore
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
