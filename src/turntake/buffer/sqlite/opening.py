"""Opens a SQLite file for work: refuses what cannot be ours, migrates, and says what an operator should know.

How this works: a file that another program made is refused before anything in it is changed. If a process died and no
other has the file open, the leases that it held end here, since nobody is left who could extend them. Then the schema
is brought up to date, and three connections are made: one writes, one answers short questions, one reads lists.
"""

import logging
from pathlib import Path
from typing import NamedTuple

import apsw

from turntake.buffer.sqlite.file import (
    how_to_close,
    is_readable_by_others,
    make_private,
    refuse_foreign,
    why,
)
from turntake.buffer.sqlite.schema import WRITER_CACHE_KIB, connect, migrate, refuse_network
from turntake.errors import ConfigurationError, StoreUnavailable

log = logging.getLogger("turntake")


class Connections(NamedTuple):
    """All on one file; whoever opened them closes them."""

    writer: apsw.Connection
    reader: apsw.Connection
    lister: apsw.Connection


def open_file(path: Path) -> Connections:
    """Raises ConfigurationError if the file cannot be ours, StoreUnavailable if another process holds it for now."""
    refuse_network(path.resolve())
    try:
        make_private(path)
        refuse_foreign(path)
        connections = _connections(str(path))
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreUnavailable(f"Another process holds the SQLite file {path}: try again later.") from error
    except apsw.Error as error:
        raise ConfigurationError(f"Cannot open the SQLite file {path}: {why(path, error)}") from error
    if is_readable_by_others(path):
        extra = {"action": "start", "path": str(path), "remedy": how_to_close(path)}
        log.warning("Everybody on this machine can read the SQLite file", extra=extra)
    return connections


def _connections(path: str) -> Connections:
    writer = connect(path, WRITER_CACHE_KIB)
    try:
        migrate(writer)
        return Connections(writer, connect(path), connect(path))
    except BaseException:
        writer.close()
        raise
