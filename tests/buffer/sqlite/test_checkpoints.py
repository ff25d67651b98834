"""The log is copied beside the writes, and begins anew; no commit copies more than a small rest."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import cast
from unittest.mock import Mock

import apsw
import pytest

from turntake.buffer.sqlite import checkpoints
from turntake.buffer.sqlite.checkpoints import Checkpoints
from turntake.buffer.sqlite.schema import connect

PAGES, REST = 60, 20


class Log:
    """A file that is written page by page, with its checkpoints."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.writer = connect(path)
        self.writer.execute("CREATE TABLE pages (body BLOB)")
        self.checkpoints = Checkpoints(self.writer, connect(path))

    def write(self, pages: int) -> int:
        """How many pages the log has now."""
        with self.writer:
            self.writer.executemany("INSERT INTO pages VALUES (zeroblob(?))", [(4_000,)] * pages)
        self.checkpoints.after_commit()
        return self.checkpoints._pages

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Meanwhile somebody reads what there is now."""
        with closing(connect(self.path)) as reader, reader:
            reader.execute("SELECT count(*) FROM pages").fetchall()
            yield

    def copied(self) -> None:
        """Waits for the thread."""
        assert self.checkpoints._copying is not None
        self.checkpoints._copying.result(timeout=30)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_PAGES", PAGES)
    monkeypatch.setattr(checkpoints, "SMALL_REST", REST)
    log = Log(str(tmp_path / "log.db"))
    yield log
    log.checkpoints.close()
    log.writer.close()


def test_a_long_log_is_copied_by_the_thread(log: Log) -> None:
    assert log.write(PAGES) > PAGES
    log.copied()
    assert log.write(1) < REST


def test_what_came_meanwhile_is_copied_by_the_next_commit(log: Log) -> None:
    """Whoever reads an older state keeps the thread from copying what came after that."""
    log.write(PAGES - 10)
    with log.reading():
        log.write(10)
        log.copied()
    assert log.write(1) > PAGES
    assert log.write(1) < REST


class Copier:
    """A connection that copies, pass by pass, this much of the log."""

    def __init__(self, *copied: int) -> None:
        self.copied = list(copied)

    def wal_checkpoint(self, mode: int) -> tuple[int, int]:
        return 0, self.copied.pop(0)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("copied", "left"),
    [
        ((1_000, 1_000), (1_000,)),  # nothing came meanwhile
        ((900, 1_000 - REST, 1_000), (1_000,)),  # little came during the second pass
        ((100, 200, 300, 400, 500, 600), (500, 600)),  # it comes faster than it can be copied
    ],
)
def test_passes_go_on_until_little_is_left(log: Log, copied: tuple[int, ...], left: tuple[int, ...]) -> None:
    copier = Copier(*copied)
    log.checkpoints._copier.close()
    log.checkpoints._copier = cast(apsw.Connection, copier)
    log.checkpoints._pages = 1_000
    log.checkpoints.after_commit()
    log.copied()
    assert tuple(copier.copied) == left


@pytest.fixture
def commits(log: Log) -> Mock:
    """What commits copy themselves, called on the writer's connection."""
    commits = Mock()
    log.checkpoints._writer = Mock(wal_checkpoint=commits)
    return commits


def test_each_long_log_is_copied_by_the_thread(log: Log, commits: Mock) -> None:
    """Also if the one before it was copied to its end, and left nothing to a commit."""
    for _ in range(3):
        log.write(PAGES)
        log.copied()
        assert log.write(1) < REST
    assert not commits.called


class SlowCopier(Copier):
    """Copies until somebody lets it end, or closes it, which must not happen meanwhile."""

    def __init__(self) -> None:
        super().__init__(1_000, 1_000)
        self.is_under_way = Event()
        self.may_end = Event()
        self.is_closed = Event()

    def wal_checkpoint(self, mode: int) -> tuple[int, int]:
        self.is_under_way.set()
        self.may_end.wait(30)
        assert not self.is_closed.is_set()
        return super().wal_checkpoint(mode)

    def close(self) -> None:
        self.is_closed.set()


def slow_copy(log: Log) -> SlowCopier:
    copier = SlowCopier()
    log.checkpoints._copier.close()
    log.checkpoints._copier = cast(apsw.Connection, copier)
    log.checkpoints._pages = 1_000
    log.checkpoints.after_commit()
    assert copier.is_under_way.wait(30)
    return copier


def test_while_the_thread_copies_no_commit_does(log: Log, commits: Mock) -> None:
    copier = slow_copy(log)
    log.checkpoints.after_commit()
    assert not commits.called
    copier.may_end.set()
    log.copied()
    log.checkpoints.after_commit()
    assert commits.call_count == 1
    log.checkpoints.after_commit()
    log.copied()
    assert (commits.call_count, copier.copied) == (1, []), "what is left then is the thread's again"


def test_closing_waits_for_a_copy_that_is_under_way(log: Log) -> None:
    copier, thread = slow_copy(log), log.checkpoints._thread

    def shutdown() -> None:
        copier.may_end.set()
        thread.shutdown()

    log.checkpoints._thread = Mock(shutdown=shutdown)
    log.checkpoints.close()
    log.copied()
    assert copier.is_closed.is_set()


def test_a_commit_is_made_though_its_checkpoint_fails(log: Log, commits: Mock) -> None:
    """Another process may be at one just now; whoever waits for the commit must not hear that it failed."""
    commits.side_effect = apsw.BusyError
    slow_copy(log).may_end.set()
    log.copied()
    log.checkpoints.after_commit()
    assert commits.called


def test_a_short_log_is_left_alone(log: Log) -> None:
    log.write(PAGES // 2)
    assert log.checkpoints._copying is None


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="files that are open are listed on Linux only")
def test_what_a_savepoint_keeps_is_kept_in_memory(tmp_path: Path) -> None:
    """A batch changes hundreds of pages after a savepoint; each would be written to a temporary file first."""
    connection: apsw.Connection = connect(str(tmp_path / "savepoint.db"))
    connection.execute("CREATE TABLE pages (body BLOB)")
    connection.executemany("INSERT INTO pages VALUES (zeroblob(?))", [(4_000,)] * 100)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("SAVEPOINT swap")
    files = len(os.listdir("/proc/self/fd"))
    connection.execute("UPDATE pages SET body = randomblob(4000)")
    assert len(os.listdir("/proc/self/fd")) == files
    connection.execute("ROLLBACK")
    connection.close()
