"""The indexes, written anew from the rows alone. Others may go on working meanwhile."""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Any

from turntake.buffer.engine.backend import PAGE
from turntake.buffer.redis.index import page
from turntake.buffer.redis.keys import Shard, member
from turntake.buffer.redis.rows import Rows, unavailable_on_error
from turntake.buffer.redis.scripts import REPAIR_DUE, REPAIR_TURNS
from turntake.buffer.redis.swap import IDLE

AT_ONCE = PAGE // 2
ROW = re.compile(r":\{s(\d+)\}:([ct]):(.+)", re.DOTALL)


class Rebuild:
    """Mends what differs and counts it. A row written meanwhile is left to whoever wrote it."""

    def __init__(self, rows: Rows, prefix: str) -> None:
        self._rows = rows
        self._prefix = prefix

    async def run(self) -> int:
        """First every row is looked up in its indexes, then every entry of an index among the rows."""
        wrong = 0
        with unavailable_on_error():
            async for number, kind, names in self._scanned():
                mend = self.conversations if kind == "c" else self._turns
                wrong += await mend(self._rows.shards[number], names)
            for shard in self._rows.shards:
                async for keys in self._entries(shard.due):
                    wrong += await self.conversations(shard, keys)
                for index in (shard.closed, shard.letters):
                    async for ids in self._entries(index):
                        wrong += await self._turns(shard, ids)
        return wrong

    async def conversations(self, shard: Shard, keys: Sequence[str]) -> int:
        """Sets these deadlines, and lists these open turns, as the rows say."""
        names: list[str] = [shard.due]
        args: list[str | int] = []
        for key, row in await self._rows.readable(shard, keys):
            due_at, turn = row.conversation.due_at, row.conversation.turn
            names += [shard.conversation(key), shard.turns(key)]
            args += [str(key), row.version, IDLE if due_at is None else due_at]
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

    async def _scanned(self) -> AsyncIterator[tuple[int, str, list[str]]]:
        """The conversations ("c") and turns ("t") of every shard, some at a time."""
        found: dict[tuple[int, str], list[str]] = defaultdict(list)
        async for name in self._rows.client.scan_iter(match=f"{self._prefix}:{{s*", count=PAGE):
            row = ROW.match(name.decode(), len(self._prefix))
            if row is None:
                continue
            number, kind, rest = int(row[1]), row[2], row[3]
            found[number, kind].append(rest)
            if len(found[number, kind]) == AT_ONCE:
                yield number, kind, found.pop((number, kind))
        for (number, kind), names in found.items():
            yield number, kind, names

    async def _entries(self, index: str) -> AsyncIterator[list[str]]:
        place: Any = None
        while entries := await page(self._rows.client, index, AT_ONCE, place):
            place = entries[-1]
            yield [name for _, name in entries]
