"""What happened, read from PostgreSQL."""

from typing import Any

from turntake.buffer.cursor import Cursor
from turntake.buffer.engine.archive import Archive, TurnRow, looked
from turntake.buffer.engine.draft import NEW, Row, row_of
from turntake.buffer.postgres.binary_arrays import Numbers, Texts
from turntake.buffer.postgres.index_start import IndexStart
from turntake.buffer.postgres.pool import Pool
from turntake.buffer.postgres.rows import turn_of
from turntake.clock import NEVER
from turntake.rules.key import ConversationKey
from turntake.rules.records import ClosedPoint, IsChosen, Looked


class PostgresArchive(Archive):
    """One statement per question."""

    def __init__(self, pool: Pool, queries: dict[str, bytes], index_start: IndexStart) -> None:
        self._index_start = index_start
        self._pool = pool
        self._queries = queries

    async def turn(self, turn_id: str) -> TurnRow | None:
        if not turn_id.isprintable():
            return None
        rows = await self._fetch("turn", (turn_id,))
        return turn_of(*rows[0]) if rows else None

    async def turns(self, key: ConversationKey, limit: int, before: tuple[int, int] | None = None) -> list[TurnRow]:
        parameters = (str(key), *(before or (NEVER, NEVER)), limit)
        return [turn_of(*row) for row in await self._fetch("turns", parameters)]

    async def letters(self, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        at, letter_id = before or (NEVER, "")
        return [turn_of(*row) for row in await self._fetch("letters", (at, _listed(letter_id), limit))]

    async def conversations(self, after: Cursor | None, limit: int) -> list[tuple[Cursor, Row]]:
        due_at, key = (after[0], _listed(after[1])) if after else (0, "")
        page: list[tuple[Cursor, Row]] = []
        if due_at is not None:
            waiting = await self._fetch("waiting", (due_at, key, limit))
            page = [(Cursor(at, key), row_of(version, body)) for at, key, version, body in waiting]
            key = ""
        if len(page) < limit:
            idle = await self._fetch("idle", (key, limit - len(page)))
            page += [(Cursor(None, key), row_of(version, body) if body else NEW) for key, version, body in idle]
        return page

    async def due(self, after: Cursor | None, limit: int, now: int) -> list[tuple[int, str]]:
        start = after or Cursor(self._index_start.for_claim(now), "")
        span = {"now": now, "due_at": start.due_at, "key": start.key, "most": limit}
        return [(due_at, key) for due_at, key in await self._fetch("due_keys", span)]

    async def forget(self, before: int, ids_before: int, limit: int) -> int:
        ids = await self._fetch("forget_ids", {"ids_before": ids_before, "most": limit})
        old = [turn_id for (turn_id,) in await self._fetch("old", (before, limit))]
        turns = await self._forget_turns(old, before, ids_before)
        await self._drop_empty({key for (key,) in (*ids, *turns)})
        return len(ids) + len(turns)

    async def forget_chosen(
        self, is_chosen: IsChosen, after: ClosedPoint, before: int, ids_before: int, limit: int
    ) -> Looked:
        span = {"at": after.at, "id": after.id, "before": before, "most": limit}
        page = [turn_of(*row) for row in await self._fetch("closed_after", span)]
        chosen = [row.id for row in page if is_chosen(row.key, row.agent)]
        turns = await self._forget_turns(chosen, before, ids_before)
        await self._drop_empty({key for (key,) in turns})
        return looked(page, len(turns), after, limit)

    async def _forget_turns(self, turn_ids: list[str], before: int, ids_before: int) -> list[Any]:
        """The keys of their conversations, one for each turn that is gone now."""
        if not turn_ids:
            return []
        span = {"turn_ids": Texts(turn_ids), "before": before, "ids_before": ids_before}
        return await self._fetch("forget", span)

    async def _drop_empty(self, conversations: set[str]) -> None:
        if keys := Texts(conversations):
            empty = await self._fetch("empty", (keys,))
            if empty:
                await self._fetch("drop_empty", (Texts(key for key, _ in empty), Numbers(at for _, at in empty)))

    async def _fetch(self, name: str, parameters: Any = ()) -> list[Any]:
        return await self._pool.fetch(self._queries[name], parameters)


def _listed(name: str) -> str:
    """What a cursor may hold: nothing else was ever listed, and the server takes no NUL."""
    if not name.isprintable():
        raise ValueError("This cursor comes from no listing.")
    return name
