"""The time as PostgreSQL notes it, in a table of one row; the server's clock is the one that counts.

How this works: every swap and every look brings the server's time and the noted one back, and the process goes by
them. The time is noted along with a swap, or by a look after something else was written; an idle process writes nothing
at all.
"""

from contextlib import suppress

from turntake.buffer.engine.noted_time import NOTED_EVERY_MS, NotedTime
from turntake.buffer.postgres.pool import Pool
from turntake.clock import Clock
from turntake.errors import StoreUnavailable


class PostgresNotedTime(NotedTime):
    """What this process noted and saw; `has_written` is whether anything was written since it noted the time."""

    def __init__(self, pool: Pool, queries: dict[str, bytes], clock: Clock) -> None:
        self.has_written = False
        self._pool = pool
        self._queries = queries
        self._clock = clock
        self._noted_at = 0

    async def read(self) -> tuple[int, int]:
        ((server_at, seen_at),) = await self._pool.fetch(self._queries["clock"])
        return server_at, seen_at

    async def set(self, at: int) -> None:
        await self._pool.fetch(self._queries["set_clock"], (at,))

    async def note(self) -> None:
        """Now, whether or not it was noted a moment ago."""
        await self._pool.fetch(self._queries["note_clock"], {"now": self._clock.now()})

    def to_note(self) -> int | None:
        """The time, if it was last noted long enough ago; whoever asks notes it."""
        now = self._clock.now()
        if now < self._noted_at + NOTED_EVERY_MS:
            return None
        self._noted_at = now
        return now

    async def looked(self, server_at: int, seen_at: int) -> None:
        """A look brought these times; it notes ours if that is needed."""
        self.follow(server_at, seen_at)
        if self.has_written and self.to_note() is not None:
            self.has_written = False
            with suppress(StoreUnavailable):
                await self.note()

    def follow(self, server_at: int, seen_at: int) -> None:
        """Goes by the server's clock, or by the latest time noted if that is well ahead: the server's was set back.

        A time that is only a little ahead was noted by a process whose clock drifted. If all went by it, the fastest
        clock would rule.
        """
        if self._clock.is_followed:
            self._clock.follow(server_at, seen_at)
