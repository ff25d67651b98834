"""Copies the write-ahead log back into the database, beside the writes and not in their way.

How this works: SQLite would copy all of it inside a commit, and whoever is in that commit waits, with everybody behind
it: a tenth of a second each time. So a thread copies it on a connection of its own, while commits go on. But the log
begins anew only once all of it was copied, and something always came meanwhile. That is copied in further passes, each
shorter than the one before, until what is left is so little that the writer copies it itself, after one of its commits.

Checkpoints are rare: busy pages are then copied back once and not again and again, which keeps the cost of a message
the same with few and with very many conversations waiting.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import apsw

# 80 MB of log: the pages that most people write to are in it many times by then, and are copied once.
CHECKPOINT_PAGES = 20_000
# What is left to a commit: some milliseconds, most of them for the disk to write the pages.
SMALL_REST = 200
# At 1,000 messages a second three do. Under a flood, more would copy busy pages again and again.
MOST_PASSES = 4


class Checkpoints:
    """Owns `copier`, a connection to the file that `writer` writes."""

    def __init__(self, writer: apsw.Connection, copier: apsw.Connection) -> None:
        self._writer = writer
        self._copier = copier
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="turntake-sqlite-checkpoints")
        self._copying: Future[None] | None = None
        self._pages = 0
        writer.set_wal_hook(self._note)

    def close(self) -> None:
        """Waits for a copy that is under way."""
        self._thread.shutdown()
        self._writer.set_wal_hook(None)
        self._copier.close()

    def after_commit(self) -> None:
        """To be called where a commit is made, by the same thread, while nobody uses the writer's connection."""
        if self._pages < CHECKPOINT_PAGES:
            self._copying = None  # the log began anew, so all of the one before was copied
            return
        if self._copying is None:
            self._copying = self._thread.submit(self._copy)
        elif self._copying.done():
            self._copying = None
            with suppress(apsw.Error):
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _copy(self) -> None:
        """If another process is at it just now, that does as well."""
        with suppress(apsw.Error):
            for _ in range(MOST_PASSES):
                _, copied = self._copier.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if self._pages - copied <= SMALL_REST:
                    return

    def _note(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """SQLite says after each commit how many pages the log has. It then makes no checkpoints of its own."""
        self._pages = pages
        return apsw.SQLITE_OK
