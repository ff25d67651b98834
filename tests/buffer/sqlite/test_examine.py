"""What `turntake doctor` finds in a SQLite file, without opening it for work."""

import shutil
from pathlib import Path

import apsw
import pytest

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
