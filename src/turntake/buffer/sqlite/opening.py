"""Opens a SQLite file for work: refuses what cannot be ours, migrates, and says what an operator should know.

How this works: a file that another program made is refused before anything in it is changed. If a process died and no
other has the file open, the leases that it held end here, since nobody is left who could extend them. Then the schema
is brought up to date, and four connections are made: one writes, one answers short questions, one reads lists, and one
copies the log into the database.
"""

import logging
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from turntake.buffer.codec import decode_conversation
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.sqlite.file import (
    how_to_close,
    is_readable_by_others,
    log_of,
    make_private,
    opened_alone,
    refuse_foreign,
    why,
)
from turntake.buffer.sqlite.queries import one, rows, run
from turntake.buffer.sqlite.schema import WRITER_CACHE_KIB, configure, connect, migrate, refuse_network
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")


class Connections(NamedTuple):
    """All on one file; whoever opened them closes them."""

    writer: apsw.Connection
    reader: apsw.Connection
    lister: apsw.Connection
    copier: apsw.Connection


def open_file(path: Path, now: int) -> Connections:
    """Raises ConfigurationError if the file cannot be ours, StoreUnavailable if another process holds it for now."""
    refuse_network(path.resolve())
    try:
        # Whoever closes the file last removes its log; `doctor`, which only looks, may leave an empty one.
        may_have_crashed = log_of(path).exists() and log_of(path).stat().st_size > 0
        make_private(path)
        refuse_foreign(path)
        if may_have_crashed:
            _after_a_crash(path, now)
        connections = _connections(str(path))
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreUnavailable(f"Another process holds the SQLite file {path}: try again later.") from error
    except apsw.Error as error:
        raise ConfigurationError(f"Cannot open the SQLite file {path}: {why(path, error)}") from error
    if is_readable_by_others(path):
        extra = {"action": "start", "path": str(path), "remedy": how_to_close(path)}
        log.warning("Everybody on this machine can read the SQLite file", extra=extra)
    return connections


def _after_a_crash(path: Path, now: int) -> None:
    """Ends the leases of a process that died, if no other has the file open: then nobody is left who holds them."""
    connection = opened_alone(path)
    if connection is None:
        return
    with closing(connection):
        configure(connection)
        migrate(connection)
        if ended := end_leases(connection, now):
            extra = {"action": "start", "turns": ended}
            log.warning("A process died while it worked; its turns are due now", extra=extra)


def end_leases(connection: apsw.Connection, now: int) -> int:
    """How many there were. A row that cannot be read is left as it is."""
    (seen_at,) = one(connection, "clock") or (0,)
    ended = 0
    with connection:
        for number, key, version, body in rows(connection, "held"):
            with suppress(ValueError, msgspec.MsgspecError):
                row = Row(version, decode_conversation(body))
                draft = Draft(ConversationKey.parse(key), row, max(now, seen_at))
                if draft.let_go():
                    draft.encode()
                    columns = draft.conversation.state, draft.conversation.due_at, draft.body
                    run(connection, "swap", draft.version, *columns, number, version, key)
                    ended += 1
    return ended


def _connections(path: str) -> Connections:
    writer = connect(path, WRITER_CACHE_KIB)
    try:
        migrate(writer)
        return Connections(writer, connect(path), connect(path), connect(path))
    except BaseException:
        writer.close()
        raise
