"""Opening a database: connection settings and numbered migrations."""

import logging
from contextlib import suppress
from importlib import resources
from pathlib import Path

import apsw

from turntake.errors import ConfigurationError

log = logging.getLogger("turntake")

MIGRATIONS = resources.files(__package__) / "migrations"
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "efs", "lustre", "glusterfs")
WRITER_CACHE_KIB, READER_CACHE_KIB = 65_536, 8_192
# What a start waits at a time for a file that another process holds; then it says so in the log, and waits again.
START_BUSY_MS = 10_000
SYNCHRONOUS = ("off", "normal", "full", "extra")


def connect(path: str, cache_kib: int = READER_CACHE_KIB) -> apsw.Connection:
    """A connection for work: see `configure`."""
    connection = apsw.Connection(path)
    connection.set_busy_timeout(START_BUSY_MS)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        configure(connection, cache_kib)
    except apsw.Error:
        connection.close()
        raise
    return connection


def configure(connection: apsw.Connection, cache_kib: int = READER_CACHE_KIB) -> None:
    """From here on a commit is durable once it returns, and what is deleted is overwritten. `Checkpoints` are made
    apart."""
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    _sort_in(connection, "MEMORY")


def synchronous(connection: apsw.Connection) -> str:
    """How far a commit on this connection goes before it returns, in SQLite's words."""
    (level,) = connection.execute("PRAGMA synchronous").fetchone() or (0,)
    return SYNCHRONOUS[level]


def migrations() -> list[tuple[int, str]]:
    """Every migration's number and text, in order."""
    files = sorted((entry for entry in MIGRATIONS.iterdir() if entry.name.endswith(".sql")), key=lambda e: e.name)
    return [(int(entry.name.split("_")[0]), entry.read_text()) for entry in files]


def migrate(connection: apsw.Connection) -> None:
    """Brings the schema up to date. A database from a later release is refused, not guessed at."""
    known = migrations()
    _sort_in(connection, "FILE")
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = schema_version(connection)
        if version > known[-1][0]:
            raise ConfigurationError(
                f"The database has schema {version}, this release knows {known[-1][0]}: install a newer turntake."
            )
        if 0 < version < known[-1][0]:
            # Said beforehand: a million conversations take seconds, for which nobody else can write.
            log.info("The SQLite file is brought to a new schema", extra={"action": "start", "schema": known[-1][0]})
        for number, text in known:
            if number > version:
                connection.execute(text)
                connection.execute(f"PRAGMA user_version = {number}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    _sort_in(connection, "MEMORY")


def _sort_in(connection: apsw.Connection, place: str) -> None:
    """Where SQLite puts what it sorts, and a savepoint what it may undo. In memory: else each page that a large batch
    changes is written to a file first. In a file for a migration, which sorts as much as there is."""
    connection.execute(f"PRAGMA temp_store = {place}")


def schema_version(connection: apsw.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone() or (0,)
    return int(version)


def refuse_network(path: Path) -> None:
    """The write-ahead log needs shared memory, which a network file system does not give."""
    with suppress(OSError):
        kind = network_file_system(path, Path("/proc/mounts").read_text())
        if kind:
            raise ConfigurationError(
                f"{path} is on a network file system ({kind}), where SQLite loses data; use a local disk, "
                "or another store."
            )


def network_file_system(path: Path, mounts: str) -> str | None:
    """The kind of network file system `path` lies on, given /proc/mounts: the write-ahead log does not work there."""
    best, kind = "", ""
    for line in mounts.splitlines():
        _, place, fstype, *_ = line.split()
        if path.is_relative_to(place) and len(place) >= len(best):
            best, kind = place, fstype
    return kind if kind.startswith(NETWORK_FILE_SYSTEMS) else None
