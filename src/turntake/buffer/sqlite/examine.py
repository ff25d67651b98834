"""Looks a SQLite file over: whether it would open, what it holds, and how much room its disk has left."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import apsw

from turntake.buffer.open import clock_findings
from turntake.buffer.sqlite.queries import one
from turntake.buffer.sqlite.schema import migrations, refuse_network, schema_version
from turntake.clock import Clock
from turntake.errors import TurntakeError
from turntake.finding import Finding

# About a million messages with their turns; enough for a few hours of a busy day.
DISK_LITTLE_BYTES = 1 << 30
# The write-ahead log alone may grow to this before it is copied back.
DISK_NOTHING_BYTES = 100 << 20


async def examine(path: Path, clock: Clock) -> AsyncIterator[Finding]:
    """Changes nothing: a file that is not there yet is not made."""
    folder = path.parent
    if not folder.is_dir():
        yield Finding("fail", "store", f"there is no folder {folder}: mkdir -p {folder}, or choose another --store")
        return
    try:
        refuse_network(path)
        yield Finding("ok", "store", contents(path))
        for finding in clock_findings(clock.wall(), noted_time(path)):
            yield finding
    except (TurntakeError, OSError) as error:
        yield Finding("fail", "store", str(error))
        return
    yield disk(folder)


def contents(path: Path) -> str:
    """What the file holds. Raises OSError that says what is wrong with it."""
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OSError(f"{path} cannot be written by this user")
    if not path.exists():
        return f"{path} will be created"
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        found, known = schema_version(connection), migrations()[-1][0]
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone() or ("?",)
        connection.close()
    except apsw.Error as error:
        raise OSError(f"{path} does not open as a database: {error}") from None
    if found > known:
        raise OSError(f"{path} has schema {found}, this release knows {known}: install a newer turntake")
    after = "" if found == known else f", {known} after the next start"
    # Serving sets both itself on every connection; the file remembers only the first.
    return f"{path}: schema {found}{after}, journal_mode {journal}, synchronous full"


def noted_time(path: Path) -> int:
    """The latest time that any process noted in the file; 0 if none did."""
    if not path.exists():
        return 0
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        (noted_at,) = one(connection, "clock") or (0,)
        connection.close()
        return int(noted_at)
    except apsw.Error:
        return 0  # not a store yet


def disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    says = f"{free / (1 << 30):.1f} GB free on the disk of {folder}"
    if free < DISK_NOTHING_BYTES:
        return Finding("fail", "disk", f"{says}: make room, or nothing can be accepted")
    return Finding("warn" if free < DISK_LITTLE_BYTES else "ok", "disk", says)
