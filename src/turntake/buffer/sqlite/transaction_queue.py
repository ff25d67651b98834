"""The write queue of a SQLite file, which decides inside the transaction that writes.

How this works: a server is asked over the network, so the engine's queue decides first, and a task waits for the reply.
Here only the commit has to be waited for. So a batch is loaded, decided and swapped in one operation of the commit
thread's transaction, without a task of its own, and its callers are answered once that is on disk.
"""

import asyncio
from contextlib import suppress

import msgspec

from turntake.buffer.codec import decode_conversation
from turntake.buffer.engine.backend import Backend
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.engine.jobs import Job, divided, news_for_handlers
from turntake.buffer.engine.write_queue import WriteQueue
from turntake.buffer.sqlite.commit_thread import LARGEST_TRANSACTION, CommitThread
from turntake.buffer.sqlite.hints import SqliteHints
from turntake.buffer.sqlite.swap import Swap
from turntake.clock import Clock
from turntake.rules.key import ConversationKey


class TransactionQueue(WriteQueue):
    """One batch at a time; what is submitted meanwhile shares the next one."""

    def __init__(self, backend: Backend, commits: CommitThread, swap: Swap, hints: SqliteHints, clock: Clock) -> None:
        super().__init__(backend, 0, clock)
        self._commits = commits
        self._hints = hints
        self._swap = swap
        self._loop = asyncio.get_running_loop()
        self._is_writing = False
        self._jobs: list[Job] = []
        self._taken: list[Job] = []

    async def close(self) -> None:
        self._is_closed = True
        while self._is_writing:
            await self._commits.run(lambda: None)

    def _start_writer(self) -> None:
        """In the event loop's next turn, so that all items of one call go together."""
        if not self._is_writing:
            self._is_writing = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._commits.submit(self._write_batch, self._committed)

    def _write_batch(self) -> None:
        """Inside the transaction. It runs again with the same jobs if another operation had to be left out of it."""
        open_jobs = self._jobs = self._jobs or self._next_jobs()
        self._load(open_jobs)
        self._taken = []
        while open_jobs:
            now = self._clock.now()
            written = [job for job in open_jobs if job.decide(now)]
            if not written:
                return
            taken, open_jobs = divided(written, self._swap.run([job.draft for job in written]))
            self._taken += taken

    def _load(self, jobs: list[Job]) -> None:
        unknown: dict[str, Job] = {}
        for job in jobs:
            row = self._rows.get(job.key)
            if row is None:
                unknown[str(job.key)] = job
            else:
                job.row = row
        if unknown:
            for key, version, body in self._swap.load(unknown):
                # One that nobody can read is taken for new, and the swap refuses it with the reason.
                with suppress(msgspec.MsgspecError):
                    unknown[key].row = Row(version, decode_conversation(body))

    def _next_jobs(self) -> list[Job]:
        """Those that waited longest, as many as one transaction takes by their messages."""
        if self._backlog.rows <= LARGEST_TRANSACTION:
            jobs = list(self._waiting.values())
            self._waiting.clear()
            self._backlog.clear()
            return jobs
        keys: list[ConversationKey] = []
        weight = 0
        for key, job in self._waiting.items():
            weight += job.weight
            if keys and weight > LARGEST_TRANSACTION:
                break
            keys.append(key)
        return self._take(keys)

    def _committed(self, _: None, error: Exception | None) -> None:
        jobs, taken = self._jobs, self._taken
        self._jobs, self._taken, self._is_writing = [], [], False
        self._being_written.clear()
        if error is None:
            for job in taken:
                self.remember(job.draft)
                job.succeed()
            self._publish([job.draft for job in taken])
        else:
            self._fail(jobs, error)
        if self._waiting:
            self._is_writing = True
            self._begin()

    def _publish(self, taken: list[Draft]) -> None:
        """To processes that share the file, if there are any."""
        if taken and self._hints.has_listeners(taken[-1].now):
            hint = self._hint(taken, taken[-1].now)
            if hint is not None:
                self._remember_hint(hint)
                self._hints.send(hint)
            if news := news_for_handlers(taken):
                self._hints.send(news)
