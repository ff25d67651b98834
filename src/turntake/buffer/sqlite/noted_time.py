"""The time as the file notes it; the machine's clock is the one that counts."""

from functools import partial

import apsw

from turntake.buffer.engine.noted_time import NotedTime
from turntake.buffer.sqlite.commit_thread import CommitThread
from turntake.buffer.sqlite.queries import one, run, unavailable_on_error
from turntake.clock import Clock


class SqliteNotedTime(NotedTime):
    """Written along by `Swap`."""

    def __init__(self, reader: apsw.Connection, writer: apsw.Connection, commits: CommitThread, clock: Clock) -> None:
        self._reader = reader
        self._writer = writer
        self._commits = commits
        self._clock = clock

    async def read(self) -> tuple[int, int]:
        with unavailable_on_error():
            (seen_at,) = one(self._reader, "clock") or (0,)
        return self._clock.wall(), int(seen_at)

    async def set(self, at: int) -> None:
        await self._commits.run(partial(run, self._writer, "set_clock", at))
