"""What is asked of conversations, gathered for as long as one write is under way and then written together.

How this works: a call has items, each of which changes the draft of one conversation. `submit` puts an item into the
job of its conversation. A writer takes the jobs that waited longest, one per conversation, decides each on the row this
process wrote last (it asks nobody first), and hands all drafts to the backend in one swap. What is submitted meanwhile
waits for the next swap: a lone item waits for nobody, and many share one round trip or one fsync.

If another process wrote a row meanwhile, the backend refuses that draft and says what it has. The job is then decided
again on that row, in the next round of the same writer; the others are done. So every item may run several times, each
time on a newer row, and only the last run counts. No conversation is in two swaps of this process at once, so it
never competes with itself.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, Generic, TypeVar

from turntake.buffer.engine.backend import Backend, NoHints, Refusal
from turntake.buffer.engine.draft import NEW, Draft, Row
from turntake.buffer.store import HORIZON_MS, Hint
from turntake.clock import Clock
from turntake.errors import StoreUnavailable
from turntake.rules.key import ConversationKey

# Some seconds of work for a busy database: whoever waits behind more had better be told to come again.
LONGEST_QUEUE = 50_000
# About a second of what a disk writes: a store that hangs costs no more memory than this, whatever people send.
LARGEST_QUEUE_BYTES = 64 << 20
# A row of a usual conversation takes about 1 KB here, so the rows remembered take about 10 MB per shard.
ROWS_REMEMBERED = 10_000
# Each round lets at least one process through; that two hundred others are quicker in a row means something is wrong.
ROUNDS = 200
# A hint that is this close may already have been acted on, so the next deadline gets one of its own.
HINT_LATE_MS = 100

NOTHING: frozenset[str] = frozenset()
T = TypeVar("T")


class Call(ABC, Generic[T]):
    """What one caller asked for: one or several items, of one or several conversations, answered together.

    Each item may be run several times, each time on a newer row; the last run's answer counts.
    """

    __slots__ = ("_error", "_missing", "future", "is_new")

    def __init__(self, items: int, *, is_new: bool = False) -> None:
        """New work is refused while too much waits; what settles older work never is."""
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.is_new = is_new
        self._missing = items
        self._error: Exception | None = None

    @abstractmethod
    def run(self, draft: Draft, item: Any) -> None:
        """Carries one item out on a draft, and notes its answer."""

    @abstractmethod
    def answer(self) -> T:
        """Once every item is stored."""

    def succeed(self) -> None:
        """One more item is stored."""
        self._missing -= 1
        if not self._missing and not self.future.done():
            if self._error is None:
                self.future.set_result(self.answer())
            else:
                self.future.set_exception(self._error)

    def fail(self, error: Exception) -> None:
        """The caller gets the first error, once it is known what became of every item."""
        self._error = self._error or error
        self.succeed()


class SingleCall(Call[T]):
    """One operation on one conversation."""

    __slots__ = ("_answer", "_operation")
    _answer: T

    def __init__(self, operation: Callable[[Draft], T], *, is_new: bool = False) -> None:
        super().__init__(1, is_new=is_new)
        self._operation = operation

    def run(self, draft: Draft, item: Any) -> None:
        self._answer = self._operation(draft)

    def answer(self) -> T:
        return self._answer


class Job:
    """What waits for one conversation: items of calls, in order.

    They are one flat list. Few objects per conversation keep Python's garbage collector from starting in the middle of
    each batch, which costs more than all the rest of the queue.
    """

    __slots__ = ("_items", "draft", "is_fresh", "key", "known", "row", "size", "weight")
    draft: Draft

    def __init__(self, key: ConversationKey) -> None:
        self.key = key
        self.row = NEW
        self.is_fresh = False
        self.known = NOTHING
        self.weight = 0
        self.size = 0
        self._items: list[Any] = []

    def add(self, call: Call[Any], item: Any, weight: int, size: int) -> None:
        self._items += (call, item)
        self.weight += weight
        self.size += size

    def decide(self, now: int) -> bool:
        """Whether there is something to write or, since nobody was asked yet, to compare."""
        draft = self.draft = Draft(self.key, self.row, now, self.known)
        items, index = self._items, 0
        try:
            for index in range(0, len(items), 2):
                items[index].run(draft, items[index + 1])
        except Exception as error:
            # This item broke: it is left out, and the others begin again without what it did.
            items[index].fail(error)
            del items[index : index + 2]
            return self.decide(now)
        try:
            draft.encode()
        except Exception as error:
            self.fail(error)
            return False
        if not items or (self.is_fresh and not draft.is_changed):
            self.succeed()
            return False
        return True

    def learn(self, refusal: Refusal) -> None:
        self.row, self.known = refusal.row, self.known | refusal.known
        self.is_fresh = self.is_fresh or refusal.is_read

    def succeed(self) -> None:
        for call in self._answered():
            call.succeed()

    def fail(self, error: Exception) -> None:
        for call in self._answered():
            call.fail(error)

    def _answered(self) -> list[Call[Any]]:
        """Whose items these are, once: a job that is done may still be in a round whose write fails."""
        calls = self._items[::2]
        self._items = []
        return calls


def divided(jobs: list[Job], refusals: list[Refusal | None]) -> tuple[list[Job], list[Job]]:
    """Whose drafts the backend took, and who must be decided again. One that can never be written fails."""
    taken: list[Job] = []
    again: list[Job] = []
    for job, refusal in zip(jobs, refusals, strict=True):
        if refusal is None:
            taken.append(job)
        elif refusal.error is not None:
            job.fail(refusal.error)
        else:
            job.learn(refusal)
            again.append(job)
    return taken, again


class Backlog:
    """How much waits to be written in all queues of a store: rows, and the bytes of the messages among them."""

    __slots__ = ("rows", "size")

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0

    @property
    def is_full(self) -> bool:
        return self.rows >= LONGEST_QUEUE or self.size >= LARGEST_QUEUE_BYTES

    def remove(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.rows -= job.weight
            self.size -= job.size


class WriteQueue:
    """The writes of one shard: at most one swap per conversation at a time, and few swaps under way.

    The queues of a store share a `backlog`: however many there are, no more waits than one may hold.
    """

    def __init__(self, backend: Backend, shard: int, clock: Clock, backlog: Backlog | None = None) -> None:
        self._backend = backend
        self._shard = shard
        self._clock = clock
        self._waiting: dict[ConversationKey, Job] = {}
        self._backlog = backlog or Backlog()
        self._being_written: set[ConversationKey] = set()
        self._rows: OrderedDict[ConversationKey, Row] = OrderedDict()
        self._writers: set[asyncio.Task[None]] = set()
        self._has_hints = not isinstance(backend.hints, NoHints)
        self._hinted_at = 0
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

    def remember(self, key: ConversationKey, row: Row) -> None:
        """What the store has as far as anybody here knows: the next operation is decided on it."""
        self._rows[key] = row
        self._rows.move_to_end(key)
        if len(self._rows) > ROWS_REMEMBERED:
            self._rows.popitem(last=False)

    async def close(self) -> None:
        """Waits for what is under way."""
        self._is_closed = True
        while self._writers:
            await asyncio.wait(self._writers)

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
        self._being_written.update(keys)
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
            self._being_written.difference_update(job.key for job in jobs)

    async def _find_rows(self, jobs: list[Job]) -> None:
        """What each job is decided on first."""
        unknown: list[Job] = []
        for job in jobs:
            row = self._rows.get(job.key)
            if row is None:
                unknown.append(job)
            else:
                job.row = row
        if unknown and self._backend.loads_first:
            # One row that nobody can read fails the call. All are taken for new then, and the swap refuses one by one.
            with suppress(Exception):
                for job, row in zip(unknown, await self._backend.load([job.key for job in unknown]), strict=True):
                    job.row = row

    async def _round(self, jobs: list[Job]) -> list[Job]:
        """Decides and writes; returns those that must be decided again."""
        now = self._clock.now()
        written = [job for job in jobs if job.decide(now)]
        if not written:
            return []
        drafts = [job.draft for job in written]
        hint = self._hint(drafts, now)
        refusals = await self._backend.swap(self._shard, drafts, hint)
        if hint is not None and None in refusals:
            self._hinted_at = hint.due_at
        taken, again = divided(written, refusals)
        for job in taken:
            self._succeed(job)
        if interrupted := [job.draft for job in taken if job.draft.closed]:
            await self._publish_interruptions(interrupted)
        return again

    def _succeed(self, job: Job) -> None:
        self.remember(job.key, job.draft.written)
        job.succeed()

    def _hint(self, drafts: list[Draft], now: int) -> Hint | None:
        """Workers elsewhere look again within the horizon; only what is due before that needs a hint.

        Whoever wakes for one hint sees everything, so while one is ahead, later deadlines need none.
        """
        if not self._has_hints:
            return None
        due = [d.conversation.due_at for d in drafts if d.is_changed and d.conversation.due_at is not None]
        soonest = min(due, default=now + HORIZON_MS)
        is_known = now + HINT_LATE_MS < self._hinted_at <= soonest
        return None if soonest >= now + HORIZON_MS or is_known else Hint(soonest)

    async def _publish_interruptions(self, taken: list[Draft]) -> None:
        """Only once they are stored: an answer that goes on after all must not be stopped."""
        stopped = tuple(
            (str(draft.key), closed.id, closed.epoch - 1)
            for draft in taken
            for closed in draft.closed
            if closed.status == "interrupted"
        )
        if stopped:
            with suppress(StoreUnavailable):
                await self._backend.hints.publish(Hint(taken[0].now + HORIZON_MS, stopped))

    def _fail(self, jobs: list[Job], error: Exception) -> None:
        """After an error nobody knows what the store has. What waited behind a database that does not answer is told
        so at once, since it would only wait in vain."""
        failed = jobs
        if isinstance(error, StoreUnavailable):
            failed = [*jobs, *self._waiting.values()]
            self._backlog.remove(self._waiting.values())
            self._waiting.clear()
        for job in failed:
            self._rows.pop(job.key, None)
            job.fail(error)
