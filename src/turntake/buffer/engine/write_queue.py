"""Operations on conversations, gathered for as long as one write is under way and then written together."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from turntake.buffer.engine.backend import Refusal, Shelf
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.store import HORIZON_MS, Hint
from turntake.clock import Clock
from turntake.errors import StoreUnavailable
from turntake.rules.key import ConversationKey

LONGEST_QUEUE = 50_000
REMEMBERED = 10_000
ROUNDS = 200
HINT_LATE_MS = 100

NEW = Row()
T = TypeVar("T")
Operation = Callable[[Draft], Any]


class Job:
    """The operations waiting for one conversation, and whom to answer."""

    __slots__ = ("answers", "draft", "is_fresh", "key", "known", "operations", "row")
    draft: Draft

    def __init__(self, key: ConversationKey) -> None:
        self.key = key
        self.row = NEW
        self.is_fresh = False
        self.known: frozenset[str] = frozenset()
        self.operations: list[tuple[Operation, asyncio.Future[Any]]] = []
        self.answers: list[Any] = []

    def decide(self, now: int) -> bool:
        """Whether there is something to write or, since nobody was asked yet, to compare."""
        while not self._run_all(now):
            continue
        try:
            self.draft.encode()
        except Exception as error:
            self.fail(error)
            return False
        if not self.operations or (self.is_fresh and not self.draft.is_changed):
            self.succeed()
            return False
        return True

    def _run_all(self, now: int) -> bool:
        """False if an operation broke: it is left out, and the others begin again without what it did."""
        self.draft = Draft(self.key, self.row, now, self.known)
        self.answers = []
        for place, (operation, future) in enumerate(self.operations):
            try:
                self.answers.append(operation(self.draft))
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
                del self.operations[place]
                return False
        return True

    def learn(self, refusal: Refusal) -> None:
        self.row, self.known = refusal.row, self.known | refusal.known
        self.is_fresh = self.is_fresh or refusal.is_read

    def succeed(self) -> None:
        for (_, future), answer in zip(self.operations, self.answers, strict=True):
            if not future.done():
                future.set_result(answer)

    def fail(self, error: Exception) -> None:
        for _, future in self.operations:
            if not future.done():
                future.set_exception(error)


class Lane:
    """At most one write a conversation at a time, and few writes under way. It decides on the row it wrote last and
    asks nobody first: if another process wrote meanwhile the store refuses, says what it has, and the operations are
    decided again on that."""

    def __init__(self, shelf: Shelf, number: int, clock: Clock) -> None:
        self._shelf = shelf
        self._number = number
        self._clock = clock
        self._waiting: dict[ConversationKey, Job] = {}
        self._length = 0
        self._written: set[ConversationKey] = set()
        self._rows: OrderedDict[ConversationKey, Row] = OrderedDict()
        self._flights: set[asyncio.Task[None]] = set()
        self._hinted_at = 0
        self._is_closed = False

    def submit(
        self, key: ConversationKey, operation: Callable[[Draft], T], *, is_new: bool = False
    ) -> asyncio.Future[T]:
        """The operation's answer, once it is stored. It may be run several times, each on a newer row."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            future.set_exception(StoreUnavailable("The store is closed."))
            return future
        if is_new and self._length >= LONGEST_QUEUE:
            future.set_exception(StoreUnavailable("Too many writes wait for the store; send it again later."))
            return future
        job = self._waiting.get(key)
        if job is None:
            job = self._waiting[key] = Job(key)
        job.operations.append((operation, future))
        self._length += 1
        if len(self._flights) < self._shelf.flights and key not in self._written:
            self._take_off()
        return future

    def remember(self, key: ConversationKey, row: Row) -> None:
        self._rows[key] = row
        self._rows.move_to_end(key)
        if len(self._rows) > REMEMBERED:
            self._rows.popitem(last=False)

    async def close(self) -> None:
        """Waits for what is under way."""
        self._is_closed = True
        while self._flights:
            await asyncio.wait(self._flights)

    def _take_off(self) -> None:
        flight = asyncio.create_task(self._fly())
        self._flights.add(flight)
        flight.add_done_callback(self._land)

    def _land(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if self._waiting and not self._flights:
            self._take_off()

    async def _fly(self) -> None:
        while jobs := self._next_jobs():
            await self._write(jobs)

    def _next_jobs(self) -> list[Job]:
        """Those that waited longest, of conversations that nobody here is writing."""
        keys = list(islice((key for key in self._waiting if key not in self._written), self._shelf.batch))
        jobs = [self._waiting.pop(key) for key in keys]
        self._written.update(keys)
        for job in jobs:
            job.row = self._rows.get(job.key, NEW)
            self._length -= len(job.operations)
        return jobs

    async def _write(self, jobs: list[Job]) -> None:
        open_jobs = jobs
        try:
            for _ in range(ROUNDS):
                open_jobs = await self._round(open_jobs)
                if not open_jobs:
                    return
            for job in open_jobs:
                job.fail(StoreUnavailable("Too many processes write to one conversation at once; send it again."))
        except Exception as error:
            self._fail(open_jobs, error)
        finally:
            self._written.difference_update(job.key for job in jobs)

    async def _round(self, jobs: list[Job]) -> list[Job]:
        """Decides and writes; returns those that must be decided again."""
        now = self._clock.now()
        written = [job for job in jobs if job.decide(now)]
        if not written:
            return []
        drafts = [job.draft for job in written]
        hint = self._hint(drafts, now)
        refusals = await self._shelf.swap(self._number, drafts, hint)
        if hint is not None and None in refusals:
            self._hinted_at = hint.due_at
        await self._tell_of_interruptions([d for d, refusal in zip(drafts, refusals, strict=True) if refusal is None])
        again = []
        for job, refusal in zip(written, refusals, strict=True):
            if refusal is None:
                self.remember(job.key, job.draft.written)
                job.succeed()
            elif refusal.error is not None:
                job.fail(refusal.error)
            else:
                job.learn(refusal)
                again.append(job)
        return again

    def _hint(self, drafts: list[Draft], now: int) -> Hint | None:
        """Workers elsewhere look again within the horizon; only what is due before that needs a word.

        Whoever wakes for one hint sees everything, so while one is ahead, later deadlines need none.
        """
        due = [d.conversation.due_at for d in drafts if d.is_changed and d.conversation.due_at is not None]
        soonest = min(due, default=now + HORIZON_MS)
        is_known = now + HINT_LATE_MS < self._hinted_at <= soonest
        return None if soonest >= now + HORIZON_MS or is_known else Hint(soonest)

    async def _tell_of_interruptions(self, taken: list[Draft]) -> None:
        """Only once it is so: an answer that goes on after all must not be stopped."""
        stopped = tuple(
            (str(draft.key), closed.id, closed.epoch - 1)
            for draft in taken
            for closed in draft.closed
            if closed.status == "interrupted"
        )
        if stopped:
            with suppress(StoreUnavailable):
                await self._shelf.announce(Hint(taken[0].now + HORIZON_MS, stopped))

    def _fail(self, jobs: list[Job], error: Exception) -> None:
        """What waited behind a server that does not answer would only wait in vain."""
        failed = jobs
        if isinstance(error, StoreUnavailable):
            failed = [*jobs, *self._waiting.values()]
            self._waiting.clear()
            self._length = 0
        for job in failed:
            self._rows.pop(job.key, None)
            job.fail(error)
