"""Documents as rows of a table of their own."""

from collections.abc import Sequence
from uuid import uuid4

from turntake.buffer.documents import Document, Documents
from turntake.buffer.postgres.binary_arrays import Texts
from turntake.buffer.postgres.pool import Pool


class PostgresDocuments(Documents):
    """One statement per question. The pool may send one twice, so each swap has an id by which it is known again."""

    def __init__(self, pool: Pool, queries: dict[str, bytes]) -> None:
        self._pool = pool
        self._queries = queries

    async def read(self, name: str) -> Document | None:
        rows = await self._pool.fetch(self._queries["document"], (name,))
        return Document(*rows[0]) if rows else None

    async def versions(self, names: Sequence[str]) -> list[int]:
        found = dict(await self._pool.fetch(self._queries["document_versions"], (Texts(names),)))
        return [found.get(name, 0) for name in names]

    async def swap(self, name: str, version: int, body: bytes) -> bool:
        parameters = {"name": name, "version": version, "body": body, "call": uuid4()}
        ((is_ours,),) = await self._pool.fetch(self._queries["swap_document"], parameters)
        return bool(is_ours)
