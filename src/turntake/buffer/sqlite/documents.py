"""Documents as rows of a table of their own."""

from collections.abc import Sequence
from functools import partial

import apsw

from turntake.buffer.documents import Document, Documents
from turntake.buffer.sqlite.commit_thread import CommitThread
from turntake.buffer.sqlite.queries import unavailable_on_error

_READ = "SELECT version, body FROM documents WHERE name = ?"
_VERSION = "SELECT version FROM documents WHERE name = ?"
_ADD = "INSERT INTO documents (version, body, name) SELECT 1, ?, ? WHERE ? = 0 ON CONFLICT DO NOTHING"
_CHANGE = "UPDATE documents SET version = version + 1, body = ? WHERE name = ? AND version = ?"


class SqliteDocuments(Documents):
    """Written by the commit thread's next transaction, so several processes can share the file."""

    def __init__(self, reader: apsw.Connection, writer: apsw.Connection, commits: CommitThread) -> None:
        self._reader = reader
        self._writer = writer
        self._commits = commits

    async def read(self, name: str) -> Document | None:
        with unavailable_on_error():
            row = self._reader.execute(_READ, (name,)).fetchone()
        return None if row is None else Document(*row)

    async def versions(self, names: Sequence[str]) -> list[int]:
        with unavailable_on_error():
            rows = [self._reader.execute(_VERSION, (name,)).fetchone() for name in names]
        return [row[0] if row else 0 for row in rows]

    async def swap(self, name: str, version: int, body: bytes) -> bool:
        return await self._commits.run(partial(self._swap, name, version, body))

    def _swap(self, name: str, version: int, body: bytes) -> bool:
        self._writer.execute(_CHANGE if version else _ADD, (body, name, version))
        return self._writer.changes() == 1
