"""Makes the indexes right again from the rows alone, while others go on working.

How this works: the indexes (who is due, which turns closed, which are letters, the turns of a conversation) say nothing
that the rows do not say. First every row is read and its entries are compared, which finds entries that are missing or
wrong. Then every entry is read and its row looked up, which finds entries without a row. A script corrects them only if
the row is still the one that was read, so a row that is written meanwhile is left to its writer.
"""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from turntake.buffer.engine.backend import PAGE
from turntake.buffer.redis.archive import drop_empty
from turntake.buffer.redis.index import page
from turntake.buffer.redis.keys import IDLE_WRITTEN, Shard, member
from turntake.buffer.redis.rows import Rows
from turntake.buffer.redis.scripts import REPAIR_DUE, REPAIR_TURNS
from turntake.buffer.redis.shards import Entry
from turntake.buffer.redis.url import unavailable_on_error

AT_ONCE = PAGE // 2  # a conversation takes two keys and five arguments of a call, whose length some services limit
ROW_NAME = re.compile(r":\{s(\d+)\}:([ct]):(.+)", re.DOTALL)


class Repair:
    """Corrects what differs and counts it."""

    def __init__(self, rows: Rows, prefix: str) -> None:
        self._rows = rows
        self._prefix = prefix

    async def run(self) -> int:
        """All rows and all indexes; returns how many entries were wrong."""
        wrong = 0
        with unavailable_on_error:
            async for number, kind, names in self._row_names():
                repair = self.conversations if kind == "c" else self._turns
                wrong += await repair(self._rows.shards[number], names)
            for shard in self._rows.shards:
                async for keys in self._members(shard.due):
                    wrong += await self.conversations(shard, keys)
                    # Earlier releases kept the row of every conversation for ever. Every turn is listed by now.
                    await drop_empty(self._rows.client, shard, keys)
                for index in (shard.closed, shard.letters):
                    async for ids in self._members(index):
                        wrong += await self._turns(shard, ids)
        return wrong

    async def conversations(self, shard: Shard, keys: Sequence[str]) -> int:
        """Sets the deadlines of these conversations, and lists their open turns, as their rows say."""
        names: list[str] = [shard.due]
        args: list[str | int] = []
        for key, row in await self._rows.readable(shard, keys):
            due_at, turn = row.conversation.due_at, row.conversation.turn
            names += [shard.conversation(key), shard.turns(key)]
            args += [str(key), row.version, IDLE_WRITTEN if due_at is None else due_at]
            args += [turn.head, member(turn)] if turn else ["", ""]
        return int(await REPAIR_DUE(self._rows.client, names, args)) if args else 0

    async def _turns(self, shard: Shard, ids: Sequence[str]) -> int:
        names: list[str] = [shard.closed, shard.letters]
        args: list[str | int] = []
        for turn_id, row in zip(ids, await self._rows.turns(shard, ids), strict=True):
            closed = row.closed if row else None
            names += [shard.turn(turn_id), shard.turns(row.key if row else "")]
            args += [turn_id, *((closed.at, closed.head, member(closed)) if closed else ("", "", ""))]
        return int(await REPAIR_TURNS(self._rows.client, names, args)) if args else 0

    async def _row_names(self) -> AsyncIterator[tuple[int, str, list[str]]]:
        """The keys of conversations ("c") and the ids of turns ("t") with their shard's number, some at a time."""
        names: dict[tuple[int, str], list[str]] = defaultdict(list)
        async for name in self._rows.client.scan_iter(match=f"{self._prefix}:{{s*", count=PAGE):
            match = ROW_NAME.match(name.decode(), len(self._prefix))
            if match is None:
                continue
            number, kind = int(match[1]), match[2]
            names[number, kind].append(match[3])
            if len(names[number, kind]) == AT_ONCE:
                yield number, kind, names.pop((number, kind))
        for (number, kind), rest in names.items():
            yield number, kind, rest

    async def _members(self, index: str) -> AsyncIterator[list[str]]:
        """All members of a sorted set, some at a time."""
        after: Entry | None = None
        while entries := await page(self._rows.client, index, AT_ONCE, after):
            after = entries[-1]
            yield [name for _, name in entries]
