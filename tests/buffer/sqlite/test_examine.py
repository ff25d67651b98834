"""What `turntake doctor` finds in a SQLite file, without opening it for work."""

import shutil
from pathlib import Path

import apsw
import pytest

from turntake.buffer.sqlite import examine
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.buffer.sqlite.examine import disk
from turntake.buffer.sqlite.schema import connect, migrate, migrations
from turntake.finding import Finding
from turntake.testing.clock import VirtualClock


async def examined(path: Path) -> list[Finding]:
    return [finding async for finding in SqliteStore.examine(f"sqlite:///{path}", VirtualClock())]


async def test_an_existing_store_is_described_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    connection = connect(str(path))
    migrate(connection)
    connection.close()
    finding, *_ = await examined(path)
    assert finding.level == "ok"
    assert f"schema {migrations()[-1][0]}, journal_mode wal, synchronous full" in finding.text


async def test_how_far_a_commit_goes_is_asked_of_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file does not remember it, so a connection that is set up as those for work are must tell."""
    path = tmp_path / "t.db"
    connection = connect(str(path))
    migrate(connection)
    connection.close()
    monkeypatch.setattr(examine, "configure", lambda connection: connection.execute("PRAGMA synchronous = OFF"))
    finding, *_ = await examined(path)
    assert (finding.level, finding.text.rpartition(", ")[2]) == ("warn", "synchronous off")


async def test_a_file_that_everybody_can_read_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    connection = connect(str(path))
    migrate(connection)
    connection.close()
    path.chmod(0o644)
    assert f"chmod 600 {path}*" in next(finding.text for finding in await examined(path) if finding.level == "warn")
    path.chmod(0o600)
    assert [finding.level for finding in await examined(path) if finding.subject == "store"] == ["ok"]


async def test_a_look_leaves_the_log_of_a_crash_where_it_is(tmp_path: Path, clock: VirtualClock) -> None:
    """The next start tells by it that a process died."""
    async with SqliteStore(str(tmp_path / "open.db"), clock):
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"open.db{suffix}", tmp_path / f"t.db{suffix}")
    await examined(tmp_path / "t.db")
    assert (tmp_path / "t.db-wal").exists()


async def test_a_store_of_a_later_release_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    finding, *_ = await examined(path)
    assert finding.level == "fail"
    assert "install a newer turntake" in finding.text


async def test_a_file_that_is_not_a_database_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_text("not a database" * 1000)
    finding, *_ = await examined(tmp_path / "t.db")
    assert finding.level == "fail"
    assert "does not open as a database" in finding.text


@pytest.mark.parametrize(("free_bytes", "mark"), [(50 << 20, "fail"), (500 << 20, "warn"), (5 << 30, "ok")])
def test_little_free_disk_space_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, mark: str
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free_bytes)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    assert disk(tmp_path).level == mark
