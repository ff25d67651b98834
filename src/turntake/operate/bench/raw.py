"""The other baseline: what SQLite itself can do with the same durability."""

from pathlib import Path

from turntake.buffer.sqlite.queries import SQL
from turntake.buffer.sqlite.schema import connect, migrate
from turntake.operate.bench.load import stopwatch_ms

CHECKPOINT_PAGES = 20_000  # as seldom as ours


def messages_per_second(path: Path, per_commit: int, for_ms: float) -> float:
    """Bare inserts of a message and its id, `per_commit` to a durable transaction."""
    connection = connect(str(path))
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)
    migrate(connection)
    inserted, started = 0, stopwatch_ms()
    while stopwatch_ms() - started < for_ms:
        connection.execute("BEGIN IMMEDIATE")
        numbers = range(inserted + 1, inserted + 1 + per_commit)
        connection.executemany(SQL["add_id"], [(n // 5, f"m{n}") for n in numbers])
        connection.executemany(SQL["add_message"], [(n // 5, n, f"m{n}", n, b"x" * 100) for n in numbers])
        connection.execute("COMMIT")
        inserted += per_commit
    rate = inserted * 1_000 / (stopwatch_ms() - started)
    connection.close()
    return rate
