"""Looks a SQLite file over: whether it would open, what it holds, and how much room its disk has left."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import apsw

from turntake.buffer.open import clock_findings
from turntake.buffer.sqlite.file import how_to_close, is_readable_by_others, look_into, obstacle, refuse_foreign, why
from turntake.buffer.sqlite.queries import one
from turntake.buffer.sqlite.schema import configure, migrations, refuse_network, schema_version, synchronous
from turntake.clock import Clock
from turntake.errors import TurntakeError
from turntake.finding import Finding

# About a million messages with their turns; enough for a few hours of a busy day.
DISK_LITTLE_BYTES = 1 << 30
# The write-ahead log alone may grow to this before it is copied back.
DISK_NOTHING_BYTES = 100 << 20
# With anything less, a machine that loses power loses what it acknowledged.
SAFE = ("full", "extra")


async def examine(path: Path, clock: Clock) -> AsyncIterator[Finding]:
    """Changes nothing: a file that is not there yet is not made."""
    try:
        refuse_network(path)
        yield contents(path)
        for finding in clock_findings(clock.wall(), noted_time(path)):
            yield finding
    except (TurntakeError, OSError) as error:
        yield Finding("fail", "store", str(error))
        return
    if is_readable_by_others(path):
        yield Finding("warn", "store", f"everybody on this machine can read it: {how_to_close(path)}")
    yield disk(path.parent)


def contents(path: Path) -> Finding:
    """What the file holds, and how safe a commit is. Raises OSError or a TurntakeError that says what is wrong."""
    if reason := obstacle(path):
        raise OSError(reason)
    if not path.exists():
        return Finding("ok", "store", f"{path} will be created")
    try:
        refuse_foreign(path)
        with look_into(path) as connection:
            found, known = schema_version(connection), migrations()[-1][0]
            (journal,) = connection.execute("PRAGMA journal_mode").fetchone() or ("?",)
            # The file does not remember this: every connection is set to it, so it is asked of one.
            configure(connection)
            level = synchronous(connection)
    except apsw.Error as error:
        raise OSError(f"{path} does not open as a database: {why(path, error)}") from None
    if found > known:
        raise OSError(f"{path} has schema {found}, this release knows {known}: install a newer turntake")
    after = "" if found == known else f", {known} after the next start"
    text = f"{path}: schema {found}{after}, journal_mode {journal}, synchronous {level}"
    return Finding("ok" if level in SAFE else "warn", "store", text)


def noted_time(path: Path) -> int:
    """The latest time that any process noted in the file; 0 if none did."""
    if not path.exists():
        return 0
    try:
        with look_into(path) as connection:
            (noted_at,) = one(connection, "clock") or (0,)
            return int(noted_at)
    except apsw.Error:
        return 0  # not a store yet


def disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    says = f"{free / (1 << 30):.1f} GB free on the disk of {folder}"
    if free < DISK_NOTHING_BYTES:
        return Finding("fail", "disk", f"{says}: make room, or nothing can be accepted")
    return Finding("warn" if free < DISK_LITTLE_BYTES else "ok", "disk", says)
