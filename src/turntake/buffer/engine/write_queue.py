"""What is asked of conversations, gathered for as long as one write is under way and then written together.

How this works: a call has items, each of which changes the draft of one conversation. `submit` puts an item into the
job of its conversation. A writer takes the jobs that waited longest, one per conversation, decides each on the row this
process wrote last (it asks nobody first), and hands all drafts to the backend in one swap. What is submitted meanwhile
waits for the next swap: a lone item waits for nobody, and many share one round trip or one fsync.

If another process wrote a row meanwhile, the backend refuses that draft and says what it has. The job is then decided
again on that row, in the next round of the same writer; the others are done. So every item may run several times, each
time on a newer row, and only the last run counts. No conversation is in two swaps of this process at once, so it
never competes with itself.

A process that is far from the database would lose that race each time against one that is near and writes often. So
whoever was refused some times in a row asks the backend to keep the row for it, for about a round trip. The others are
told so, set their jobs for that row aside meanwhile, and gather what is submitted for it.
"""

import asyncio
from contextlib import suppress
from itertools import islice
from typing import Any

from turntake.buffer.engine.backend import Backend
from turntake.buffer.engine.draft import Draft
from turntake.buffer.engine.hints import NoHints
from turntake.buffer.engine.jobs import Backlog, Call, Job, divided, news_for_handlers
from turntake.buffer.engine.row_cache import RowCache
from turntake.buffer.store import HORIZON_MS, Hint
from turntake.clock import Clock, real_pause
from turntake.errors import StoreUnavailable
from turntake.rules.key import ConversationKey
from turntake.rules.watch import slice_of

# Each round lets at least one process through; that two hundred others are quicker in a row means something is wrong.
ROUNDS = 200
# Near neighbours pass each other in a round or two; whoever is refused more often is too far away to win by chance.
REFUSALS_TAKEN = 3
# A row is kept for two round trips and this: long enough for whoever asked, unnoticed by the others if it died.
KEPT_MS = 10
# However slow the line: somebody who died with a row kept for it holds the others up for half a second at most.
LONGEST_KEPT_MS = 500
# A hint that is this close may already have been acted on, so the next deadline gets one of its own.
HINT_LATE_MS = 100


class WriteQueue:
    """The writes of one shard: at most one swap per conversation at a time, and few swaps under way.

    The queues of a store share a `backlog`: however many there are, no more waits than one may hold.
    """

    def __init__(
        self,
        backend: Backend,
        shard: int,
        clock: Clock,
        backlog: Backlog | None = None,
        rows: RowCache | None = None,
    ) -> None:
        self._backend = backend
        self._shard = shard
        self._clock = clock
        self._rows = RowCache(0) if rows is None else rows
        self._waiting: dict[ConversationKey, Job] = {}
        self._backlog = backlog or Backlog()
        # By whom: the jobs of a writer, or a job that is set aside.
        self._being_written: dict[ConversationKey, object] = {}
        self._writers: set[asyncio.Task[None]] = set()
        self._set_aside: set[asyncio.Task[None]] = set()
        self._has_hints = not isinstance(backend.hints, NoHints)
        self._hinted: dict[int, int] = {}
        self._round_trip_ms = 0
        self._is_closed = False

    def submit(self, key: ConversationKey, call: Call[Any], item: Any = None, weight: int = 1, size: int = 0) -> None:
        """One item of a call, about so many rows, with messages of so many bytes.

        The call's future has the answer, once everything is stored.
        """
        if self._is_closed:
            call.fail(StoreUnavailable("The store is closed."))
            return
        if call.is_new and self._backlog.is_full:
            call.fail(StoreUnavailable("Too many writes wait for the store; send it again later."))
            return
        job = self._waiting.get(key)
        if job is None:
            job = self._waiting[key] = Job(key)
        job.add(call, item, weight, size)
        self._backlog.rows += weight
        self._backlog.size += size
        if key not in self._being_written:
            self._start_writer()

    def remember(self, draft: Draft) -> None:
        """What the store took: the next operation is decided on it."""
        self._rows.put(draft.key, draft.written, draft.body)

    async def close(self) -> None:
        """Waits for what is under way."""
        self._is_closed = True
        while under_way := self._writers | self._set_aside:
            await asyncio.wait(under_way)

    def _start_writer(self) -> None:
        """Unless enough of them are at work: one of those goes on with it."""
        if len(self._writers) >= self._backend.writers:
            return
        writer = asyncio.create_task(self._write_batches())
        self._writers.add(writer)
        writer.add_done_callback(self._writer_done)

    def _writer_done(self, writer: asyncio.Task[None]) -> None:
        """What waited for a conversation that the last writer had in hand needs a writer of its own."""
        self._writers.discard(writer)
        if self._waiting and not self._writers:
            self._start_writer()

    async def _write_batches(self) -> None:
        while jobs := self._next_jobs():
            await self._write(jobs)

    def _next_jobs(self) -> list[Job]:
        """Those that waited longest, of conversations that nobody here is writing."""
        free = (key for key in self._waiting if key not in self._being_written)
        return self._take(list(islice(free, self._backend.batch)))

    def _take(self, keys: list[ConversationKey]) -> list[Job]:
        jobs = [self._waiting.pop(key) for key in keys]
        self._being_written.update(dict.fromkeys(keys, jobs))
        self._backlog.remove(jobs)
        return jobs

    async def _write(self, jobs: list[Job]) -> None:
        open_jobs = jobs
        try:
            await self._find_rows(jobs)
            for _ in range(ROUNDS):
                open_jobs = await self._round(open_jobs)
                if not open_jobs:
                    return
            for job in open_jobs:
                job.fail(StoreUnavailable("Too many processes write to one conversation at once; send it again."))
        except Exception as error:
            self._fail(open_jobs, error)
        finally:
            for job in jobs:
                if self._being_written.get(job.key) is jobs:
                    del self._being_written[job.key]

    async def _find_rows(self, jobs: list[Job]) -> None:
        """What each job is decided on first."""
        unknown: list[Job] = []
        for job in jobs:
            row = self._rows.get(job.key)
            if row is None:
                unknown.append(job)
            else:
                job.row = row
        if unknown and self._rows.is_reading_first:
            # One row that nobody can read fails the call. All are taken for new then, and the swap refuses one by one.
            with suppress(Exception):
                for job, row in zip(unknown, await self._backend.load([job.key for job in unknown]), strict=True):
                    job.row = row
                    self._rows.learn(row.version > 0)

    async def _round(self, jobs: list[Job]) -> list[Job]:
        """Decides and writes; returns those that must be decided again."""
        now = self._clock.now()
        written = [job for job in jobs if job.decide(now)]
        if not written:
            return []
        self._ask_to_keep(written)
        drafts = [job.draft for job in written]
        hint = self._hint(drafts, now)
        refusals = await self._backend.swap(self._shard, drafts, hint)
        self._round_trip_ms = self._clock.now() - now
        if hint is not None and None in refusals:
            self._remember_hint(hint)
        taken, again = divided(written, refusals)
        for job in taken:
            self._succeed(job)
        if noteworthy := [job.draft for job in taken if job.draft.closed or job.draft.is_offer]:
            await self._publish_news(noteworthy)
        return [job for job in again if self._is_to_go_on(job)]

    def _ask_to_keep(self, jobs: list[Job]) -> None:
        """The rows of those that others were quicker than too often."""
        for job in jobs:
            if job.refusals >= REFUSALS_TAKEN:
                job.draft.keep_ms = min(KEPT_MS + 2 * self._round_trip_ms, LONGEST_KEPT_MS)

    def _succeed(self, job: Job) -> None:
        if not job.draft.row.version:
            self._rows.learn(False)
        self.remember(job.draft)
        job.succeed()

    def _is_to_go_on(self, job: Job) -> bool:
        """Whether a refused job is decided again at once, and not set aside for as long as its row is kept."""
        if job.row.version and not job.draft.row.version:
            self._rows.learn(True)
        if not job.kept_ms or job.refusals >= ROUNDS:
            return True
        self._being_written[job.key] = job
        self._rows.drop(job.key)
        task = asyncio.create_task(self._take_up_later(job))
        self._set_aside.add(task)
        task.add_done_callback(self._set_aside.discard)
        return False

    async def _take_up_later(self, job: Job) -> None:
        """The job waits in line again, in front of what was submitted for its conversation since."""
        await real_pause(job.kept_ms)
        later = self._waiting.pop(job.key, None)
        self._backlog.add(job)
        if later is not None:
            job.add_all(later)
        self._waiting[job.key] = job
        del self._being_written[job.key]
        self._start_writer()

    def _hint(self, drafts: list[Draft], now: int) -> Hint | None:
        """Workers elsewhere look again within the horizon; only what is due before that needs a hint.

        Deadlines close to each other have the same watchers, who see the later ones when they wake for the first: while
        one hint is ahead, a later deadline of its slice needs none.
        """
        if not self._has_hints:
            return None
        soonest: dict[int, int] = {}
        for draft in drafts:
            due_at = draft.conversation.due_at
            if due_at is not None and due_at < now + HORIZON_MS and draft.body:
                near = slice_of(due_at)
                if not now + HINT_LATE_MS < self._hinted.get(near, 0) <= due_at:
                    soonest[near] = min(due_at, soonest.get(near, due_at))
        if not soonest:
            return None
        self._hinted = {near: at for near, at in self._hinted.items() if at > now}
        first, *later = sorted(soonest.values())
        return Hint(first, (), self._shard, tuple(later))

    def _remember_hint(self, hint: Hint) -> None:
        """It was published: until its deadlines have come, those close after them need no other."""
        self._hinted.update((slice_of(due_at), due_at) for due_at in (hint.due_at, *hint.later))

    async def _publish_news(self, taken: list[Draft]) -> None:
        if news := news_for_handlers(taken):
            with suppress(StoreUnavailable):
                await self._backend.hints.publish(news)

    def _fail(self, jobs: list[Job], error: Exception) -> None:
        """After an error nobody knows what the store has. What waited behind a database that does not answer is told
        so at once, since it would only wait in vain."""
        failed = jobs
        if isinstance(error, StoreUnavailable):
            failed = [*jobs, *self._waiting.values()]
            self._backlog.remove(self._waiting.values())
            self._waiting.clear()
        for job in failed:
            self._rows.drop(job.key)
            job.fail(error)
