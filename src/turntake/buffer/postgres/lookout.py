"""Looks at the index of deadlines: when a worker must look next, if others share the deadlines with it.

How this works: a look reads the deadlines of the next horizon, in order, and finds the first that this worker has to
wake for. That is one of which it is the first watcher, or one that is past and that its first watcher did not take yet:
the second and the third watcher, who hear of it by its hint, come later by a step each. A step is longer here than in
`rules/watch.py`, since a claim is two round trips and a commit: whoever came earlier would only find the row locked.
What is overdue by more is everybody's, whoever looks.

Since that step is long, a worker that died must be missed soon, so each says every second that it lives. That takes no
transaction of its own: the first look after a worker said so says it again, and brings back who else lives.
"""

from collections.abc import Sequence

from turntake.buffer.engine.lookout import Lookout
from turntake.buffer.postgres.index_start import IndexStart
from turntake.buffer.postgres.noted_time import PostgresNotedTime
from turntake.buffer.postgres.pool import Pool
from turntake.buffer.store import HORIZON_MS
from turntake.clock import Clock
from turntake.rules.watch import ALONE, LIVING_MS, STAGGER_MS, WATCHERS, Place, wake_at

STEP_MS = 100  # several times what a claim takes on a busy server
EVERYBODYS_MS = WATCHERS * STEP_MS


class PostgresLookout(Lookout):
    """One for each process. Who lives is a table, `workers`."""

    _worker: str | None = None
    """Who looks, once it joined."""
    _met: list[str] | None = None
    """Who lives, if a look found out since the last `join`."""

    def __init__(
        self,
        pool: Pool,
        queries: dict[str, bytes],
        index_start: IndexStart,
        noted_time: PostgresNotedTime,
        clock: Clock,
    ) -> None:
        self._pool = pool
        self._queries = queries
        self._index_start = index_start
        self._noted_time = noted_time
        self._clock = clock
        self._place = ALONE

    async def join(self, worker: str, now: int) -> list[str]:
        met, self._met = self._met, None
        if met is not None and worker == self._worker:
            return met
        self._worker = worker
        known = {"worker": worker, "now": now, "gone_at": now - LIVING_MS}
        return [name for (name,) in await self._pool.fetch(self._queries["join"], known)]

    async def leave(self, worker: str) -> None:
        self._worker = None
        await self._pool.fetch(self._queries["leave"], (worker,))

    def take_place(self, place: Place) -> None:
        self._place = place

    def expect(self, shard: int, due_at: int) -> None:
        """Nothing: the next look sees it, since every look is at the whole horizon."""

    async def next_due(self) -> int | None:
        """The earliest deadline of all."""
        look = self._index_start.look(self._clock.now())
        ((earliest, server_at, seen_at),) = await self._pool.fetch(self._queries["next_due"], (look.start,))
        due_at: int | None = earliest
        self._index_start.looked(look, due_at)
        await self._noted_time.looked(server_at, seen_at)
        return due_at

    async def next_look(self, now: int) -> int | None:
        is_saying = self._worker is not None and self._met is None
        if self._place.workers == 1 and not is_saying:
            return await self.next_due()
        look = self._index_start.look(now)
        span = {"start": look.start, "end": now + HORIZON_MS, "most": self._place.workers}
        if is_saying:
            known = span | {"worker": self._worker, "now": now, "gone_at": now - LIVING_MS}
            ((due_ats, server_at, seen_at, self._met),) = await self._pool.fetch(self._queries["look_and_join"], known)
        else:
            ((due_ats, server_at, seen_at),) = await self._pool.fetch(self._queries["next_dues"], span)
        self._index_start.looked(look, due_ats[0] if due_ats else None)
        await self._noted_time.looked(server_at, seen_at)
        return look_at(self._place, due_ats, now)


def look_at(place: Place, due_ats: Sequence[int], now: int) -> int | None:
    """`due_ats` are the earliest deadlines, in order. None if none of them is this worker's."""
    for due_at in due_ats:
        if due_at + EVERYBODYS_MS <= now:
            return due_at
        woken_at = wake_at(place, 0, 1, due_at)
        if woken_at is not None and (woken_at == due_at or due_at <= now):
            return due_at + (woken_at - due_at) // STAGGER_MS * STEP_MS
    return None
