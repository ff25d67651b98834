"""The servers behind the contenders: started here for one run each, and asked what they did and what it cost."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import apsw
import psycopg
import redis

from harness.databases import Postgres, Valkey

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Server(ABC):
    """One store server. `settle_s` is how long its counters lag behind."""

    url: str
    settle_s = 1.0

    @abstractmethod
    def cpu_s(self) -> float:
        """CPU seconds that it used so far."""

    @abstractmethod
    def commands(self) -> int | None:
        """How many commands it carried out so far, except those that ask; None if it does not count."""

    @abstractmethod
    def stored_bytes(self) -> int:
        """What it holds."""

    def written(self) -> int:
        """Bytes that whoever uses it wrote to files so far; 0 if the server writes them."""
        return 0

    @abstractmethod
    def calm(self) -> None:
        """Does now what it would do in the background soon, so that a measurement is of itself."""


class RedisServer(Server):
    """Redis or Valkey."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = redis.Redis.from_url(url)
        self._pid = int(self._info("server")["process_id"])
        self._asked = 0

    def cpu_s(self) -> float:
        return cpu_s(self._pid)

    def commands(self) -> int:
        self._asked += 1
        return int(self._info("stats")["total_commands_processed"]) - self._asked

    def stored_bytes(self) -> int:
        return int(self._info("memory")["used_memory"])

    def calm(self) -> None:
        """It does nothing in the background that we could hasten."""

    def _info(self, section: str) -> dict[str, str]:
        answer: dict[str, str] = self._client.info(section)
        return answer


class PostgresServer(Server):
    """A database of our own in a PostgreSQL server; asked from another database, so that asking is not counted."""

    settle_s = 11.0  # an idle backend reports what it did after 10 s

    def __init__(self, url: str, control_url: str) -> None:
        self.url = url
        self._control = psycopg.connect(control_url, autocommit=True)
        self._postmaster = parent(self._control.info.backend_pid)

    def cpu_s(self) -> float:
        """Of the postmaster, of the backends that ended, and of those that live."""
        return cpu_s(self._postmaster, with_ended=True) + sum(map(cpu_s, children(self._postmaster)))

    def commands(self) -> int:
        return self._number("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'bench'")

    def stored_bytes(self) -> int:
        return self._number("SELECT pg_database_size('bench')")

    def calm(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    def _number(self, query: str) -> int:
        row = self._control.execute(query).fetchone()
        assert row is not None
        return int(row[0])


class SqliteFile(Server):
    """No server at all: whoever opens the file does the work, and is measured with it."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    def cpu_s(self) -> float:
        return 0.0

    def commands(self) -> None:
        return None

    def stored_bytes(self) -> int:
        return sum(file.stat().st_size for file in self._path.parent.glob(f"{self._path.name}*"))

    def written(self) -> int:
        return int(Path("/proc/self/io").read_text().partition("wchar: ")[2].split()[0])

    def calm(self) -> None:
        """Copies the log into the database, as would happen soon, and leaves nothing for the disk to do."""
        with closing(apsw.Connection(str(self._path))) as connection:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        os.sync()


@contextmanager
def _redis(folder: Path) -> Iterator[Server]:
    with Valkey(folder / "valkey") as server:
        yield RedisServer(server.url)


@contextmanager
def _postgres(folder: Path) -> Iterator[Server]:
    with Postgres(folder / "postgres") as server:
        yield PostgresServer(server.database("bench"), server.url)


@contextmanager
def _sqlite(folder: Path) -> Iterator[Server]:
    yield SqliteFile(folder / "bench.db")


STORES: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "redis": _redis,
    "postgresql": _postgres,
    "sqlite": _sqlite,
}


def cpu_s(pid: int, *, with_ended: bool = False) -> float:
    """CPU seconds of a process, in user and kernel mode; with those of its children that ended, if asked."""
    try:
        fields = _stat(pid)
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / TICKS_A_SECOND


def busy_s() -> float:
    """CPU seconds that this machine used so far, for whatever."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(interrupts)) / TICKS_A_SECOND


def parent(pid: int) -> int:
    return int(_stat(pid)[1])


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
