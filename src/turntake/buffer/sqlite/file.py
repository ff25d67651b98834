"""The file itself: who may read it, whose it is, whether anybody else has it open, and why it does not open.

Nothing here opens the file by itself, other than through SQLite: to close a second handle of it would take away the
locks that SQLite holds on it for this process.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw

from turntake.errors import ConfigurationError

OURS = {"conversations", "turns", "clock"}
PRIVATE = 0o600
BUSY_MS = 10_000  # what whoever only looks waits for a process that holds the file
TABLES_NAMED = 3  # enough to see whose file it is


def make_private(path: Path) -> None:
    """A new file, which nobody else may read; SQLite gives its companions the same rights. One that is there stays."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))


def is_readable_by_others(path: Path) -> bool:
    with suppress(OSError):
        return bool(path.stat().st_mode & stat.S_IROTH)
    return False


def how_to_close(path: Path) -> str:
    """What to do about a file that everybody can read."""
    return f"chmod 600 {path}*"


def log_of(path: Path) -> Path:
    """The write-ahead log. Whoever closes the file last takes it away, so one that is there was left by a crash, or is
    in use."""
    return path.with_name(f"{path.name}-wal")


def obstacle(path: Path) -> str:
    """Why nobody can open the file, and what to do; empty if nothing is in the way."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}: mkdir -p {path.parent}, or choose another --store"
    if path.is_dir():
        return f"{path} is a folder; name a file in it"
    if not os.access(path.parent, os.W_OK):
        return f"{path.parent} cannot be written by this user; SQLite keeps its log there too"
    if path.exists() and not os.access(path, os.W_OK):
        return f"{path} cannot be written by this user"
    return ""


def why(path: Path, error: apsw.Error) -> str:
    """The error in words for whoever starts the program."""
    if isinstance(error, apsw.NotADBError):
        return f"{path} is no SQLite file, or an encrypted one: choose another --store"
    return obstacle(path) or str(error)


@contextmanager
def look_into(path: Path) -> Iterator[apsw.Connection]:
    """A connection to an existing file that leaves everything as it is, also a log that a crash left behind."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        connection.set_busy_timeout(BUSY_MS)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        yield connection


def refuse_foreign(path: Path) -> None:
    """Another program's database is not made ours by adding tables to it."""
    if not path.exists():
        return
    with look_into(path) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        tables = {name for (name,) in found}
    if tables and not tables >= OURS:
        some = ", ".join(sorted(tables - OURS)[:TABLES_NAMED]) or "incomplete"
        raise ConfigurationError(f"{path} is the database of another program (tables: {some}): choose another --store.")


def opened_alone(path: Path) -> apsw.Connection | None:
    """A connection beside which no other is open, in any process; None if there is another.

    SQLite itself knows: whoever uses a file with a write-ahead log holds a shared lock on it until the end, and a lock
    ends with its process, however that ended.
    """
    connection = apsw.Connection(str(path))
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    except apsw.BusyError:
        connection.close()
        return None
    return connection
