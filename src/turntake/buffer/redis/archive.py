"""What happened, read from Redis: turns by their ids and their conversations, and the index of deadlines."""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from turntake.buffer.codec import encode
from turntake.buffer.cursor import Cursor
from turntake.buffer.engine.archive import Archive, TurnRow
from turntake.buffer.engine.backend import PAGE, Messages
from turntake.buffer.engine.draft import Row
from turntake.buffer.redis.index import page
from turntake.buffer.redis.keys import IDLE, MEMBER_DIGITS, Shard, member, place_of, shard_hash_of
from turntake.buffer.redis.lookout import RedisLookout
from turntake.buffer.redis.rows import Rows
from turntake.buffer.redis.scripts import DROP_EMPTY, FORGET, FORGET_IDS
from turntake.buffer.redis.url import Client, unavailable_on_error
from turntake.rules.key import ConversationKey
from turntake.rules.records import ClosedPoint, IsChosen, Looked


class RedisArchive(Archive):
    """Turns have rows of their own; which are closed, dead letters or due is in the sorted sets of their shard."""

    def __init__(self, rows: Rows, lookout: RedisLookout) -> None:
        self._rows = rows
        self._lookout = lookout
        self._client = rows.client

    async def turn(self, turn_id: str) -> TurnRow | None:
        shard_hash = shard_hash_of(turn_id)
        if shard_hash is None:
            return None
        (row,) = await self._rows.turns(self._rows.shards.of(shard_hash), [turn_id])
        return row

    async def turns(self, key: ConversationKey, limit: int, before: tuple[int, int] | None = None) -> list[TurnRow]:
        shard = self._rows.shards.of(key.shard_hash)
        after = None if before is None else (float(before[0]), place_of(before[1]))
        with unavailable_on_error:
            entries = await page(self._client, shard.turns(key), min(limit, PAGE), after, desc=True)
        rows = await self._rows.turns(shard, [name[MEMBER_DIGITS:] for _, name in entries])
        return [row for row in rows if row]

    async def letters(self, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        shards = self._rows.shards
        with unavailable_on_error:
            entries = await shards.first_of_all(
                min(limit, PAGE),
                lambda shard, count: page(self._client, shard.letters, count, before, desc=True),
                desc=True,
            )
        by_shard: dict[Shard, list[str]] = defaultdict(list)
        for shard, (_, turn_id) in entries:
            by_shard[shard].append(turn_id)
        parts = await shards.ask_each(list(by_shard), lambda shard: self._rows.turns(shard, by_shard[shard]))
        rows = [row for part in parts for row in part if row and row.is_letter]
        return sorted(rows, key=_letter_order, reverse=True)

    async def conversations(self, after: Cursor | None, limit: int) -> list[tuple[Cursor, Row]]:
        start = None if after is None else (IDLE if after.due_at is None else float(after.due_at), after.key)
        with unavailable_on_error:
            entries = await self._rows.shards.first_of_all(
                limit, lambda shard, count: page(self._client, shard.due, count, start)
            )
        cursors = [Cursor(None if score == IDLE else int(score), key) for _, (score, key) in entries]
        rows = await self._rows.load([ConversationKey.parse(key) for _, key in cursors])
        return list(zip(cursors, rows, strict=True))

    async def due(self, after: Cursor | None, limit: int, now: int) -> list[tuple[int, str]]:
        return await self._lookout.due_after(after, limit, now)

    async def forget(self, before: int, ids_before: int, limit: int) -> int:
        dropped = 0
        for shard in self._rows.shards:
            if dropped < limit:
                with unavailable_on_error:
                    ids, of_ids = await self._forget_ids(shard, ids_before, min(limit, PAGE))
                    turns, of_turns = await self._forget_turns(shard, before, ids_before, min(limit - dropped, PAGE))
                    await drop_empty(self._client, shard, of_ids | of_turns)
                dropped += ids + turns
        return dropped

    async def forget_chosen(
        self, is_chosen: IsChosen, after: ClosedPoint, before: int, ids_before: int, limit: int
    ) -> Looked:
        start = (float(after.at), after.id)
        with unavailable_on_error:
            entries = await self._rows.shards.first_of_all(
                limit, lambda shard, count: page(self._client, shard.closed, count, start)
            )
        old = [(shard, ClosedPoint(int(at), turn_id)) for shard, (at, turn_id) in entries if at < before]
        forgotten = 0
        for shard in dict.fromkeys(shard for shard, _ in old):
            turn_ids = [point.id for of, point in old if of is shard]
            rows = await self._rows.turns(shard, turn_ids)
            chosen = [row.id for row in rows if row and row.closed and is_chosen(row.key, row.agent)]
            with unavailable_on_error:
                turns, keys = await self._drop_turns(shard, chosen, before, ids_before)
                await drop_empty(self._client, shard, keys)
            forgotten += turns
        return Looked(forgotten, old[-1][1] if old else after, is_end=len(old) < limit)

    async def _forget_turns(self, shard: Shard, before: int, ids_before: int, limit: int) -> tuple[int, set[str]]:
        """How many turns are gone, and the keys of their conversations."""
        found = await self._client.zrange(shard.closed, "-inf", f"({before}", byscore=True, offset=0, num=limit)
        return await self._drop_turns(shard, [id.decode() for id in found], before, ids_before)

    async def _drop_turns(
        self, shard: Shard, turn_ids: list[str], before: int, ids_before: int
    ) -> tuple[int, set[str]]:
        """The same of these turns, unless they opened again."""
        names: list[str] = [shard.closed, shard.ids]
        args: list[Any] = [before, ids_before]
        keys: set[str] = set()
        for turn_id, row in zip(turn_ids, await self._rows.turns(shard, turn_ids), strict=True):
            key, entry = (str(row.key), member(row.closed)) if row and row.closed else ("", "")
            messages: Messages = {}
            if row and row.closed and row.closed.status != "interrupted":
                messages = await self._rows.messages(row.key, row.closed.numbers.start, row.closed.tail)
            numbers, ids = [f"m{seq}" for seq in messages], [f"i{m.id}" for m in messages.values()]
            names += [shard.turn(turn_id), shard.conversation(key), shard.turns(key)]
            args.append(encode((turn_id, key, entry, numbers, ids)))
            keys.add(key)
        return (int(await FORGET(self._client, names, args)) if turn_ids else 0), keys - {""}

    async def _forget_ids(self, shard: Shard, before: int, limit: int) -> tuple[int, set[str]]:
        """How many ids are gone, and the keys of their conversations."""
        found = await self._client.zrange(shard.ids, "-inf", f"({before}", byscore=True, offset=0, num=limit)
        keys = [key.decode() for key in found]
        names = [shard.ids, *map(shard.conversation, keys)]
        return (int(await FORGET_IDS(self._client, names, [before, *keys])) if keys else 0), set(keys)


async def drop_empty(client: Client, shard: Shard, keys: Collection[str]) -> None:
    """Drops those of these conversations of which nothing is left."""
    if keys:
        names = [name for key in keys for name in (shard.conversation(key), shard.turns(key))]
        await DROP_EMPTY(client, [shard.due, *names], list(keys))


def _letter_order(row: TurnRow) -> tuple[int, str]:
    assert row.closed is not None
    return row.closed.at, row.id
