"""The other baseline: what SQLite itself can do with the same durability."""

from pathlib import Path
from time import perf_counter

from turntake.buffer.sqlite.schema import connect, migrate


def messages_a_second(path: Path, per_commit: int, seconds: float) -> float:
    """Bare inserts of a message with its id index, `per_commit` to a durable transaction."""
    connection = connect(str(path))
    migrate(connection)
    inserted, started = 0, perf_counter()
    while perf_counter() - started < seconds:
        connection.execute("BEGIN IMMEDIATE")
        rows = [(n // 5, n, f"m{n}", n, b"x" * 100) for n in range(inserted, inserted + per_commit)]
        connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
        inserted += per_commit
    rate = inserted / (perf_counter() - started)
    connection.close()
    return rate
