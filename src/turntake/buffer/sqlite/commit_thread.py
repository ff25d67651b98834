"""One writer with group commit.

How this works: operations run on the event loop, since inside a transaction they only touch memory and take
microseconds. The commit, which waits for the disk, runs in a thread of its own. Whatever asks meanwhile waits, and
shares the next transaction: a lone operation waits for nobody, and many share one fsync.

    run() ── waiting ── _begin ── _begun: runs every operation ── _commit (in the thread) ── _finish
                ▲                                                                              │
                └────────────────── what came meanwhile, in one transaction ───────────────────┘

While another process writes, the thread waits for it, in the turnstile: so whoever waits comes next.

If the database fails, nobody's operation counts. If one operation fails for a reason of its own, it is told so, and the
others begin again without it.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import apsw

from turntake.buffer.sqlite.checkpoints import Checkpoints
from turntake.buffer.sqlite.turnstile import Turnstile
from turntake.clock import pause_thread
from turntake.errors import StoreUnavailable

# Longer than any transaction of another process takes, shorter than most senders of webhooks wait for an answer.
BUSY_TIMEOUT_MS = 10_000
# For somebody else to leave the turnstile. One that takes longer was stopped there, and is passed by.
TURNSTILE_MS = 1_000
# A transaction takes some milliseconds; to ask more often would not be noticed.
ASK_EVERY_MS = 1
# Rows of one transaction: they take about 5 ms of the event loop, for which nobody else is served.
LARGEST_TRANSACTION = 500

T = TypeVar("T")


class _Waiting(NamedTuple):
    operation: Callable[[], Any]
    done: Callable[[Any, Exception | None], None]
    weight: int


_Job = tuple[Callable[[], None], Callable[[Exception | None], None]]
"""What the thread does, and what the event loop does then."""


class CommitThread:
    """Runs operations on its connection, several per transaction."""

    def __init__(self, connection: apsw.Connection, turnstile: Turnstile, checkpoints: Checkpoints) -> None:
        # Nothing waits on the event loop: whoever is busy is waited for in the thread.
        connection.set_busy_timeout(0)
        self._connection = connection
        self._turnstile = turnstile
        self._checkpoints = checkpoints
        self._waiting: deque[_Waiting] = deque()
        self._is_running = False
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="turntake-sqlite", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, so that the connection may be read from."""
        return not self._is_running

    def run(self, operation: Callable[[], T], weight: int = 1) -> "asyncio.Future[T]":
        """The operation's answer, once it is on disk; StoreUnavailable if it could not be put there.

        `weight` is how many rows it is about; a transaction takes so many that the event loop is not held up.
        """
        future: asyncio.Future[T] = self._loop.create_future()

        def done(answer: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(answer)

        self.submit(operation, done, weight)
        return future

    def submit(self, operation: Callable[[], T], done: Callable[[T, Exception | None], None], weight: int = 1) -> None:
        """As `run`, for a caller who waits for nothing: `done` is called with the answer, or with the error."""
        if self._is_closed:
            done(cast(T, None), StoreUnavailable("The store is closed."))
            return
        self._waiting.append(_Waiting(operation, done, weight))
        if not self._is_running:
            self._is_running = True
            self._begin()

    async def close(self) -> None:
        """Waits for what is under way, then ends the thread."""
        self._is_closed = True
        while self._is_running:
            await self._turn_of_thread()
        self._jobs.put(None)
        self._thread.join()

    def _begin(self) -> None:
        """Without waiting if the file is free; while another process holds it, the thread waits."""
        try:
            if self._connection.in_transaction:
                self._roll_back()
            is_begun = self._turnstile.enter() and self._try_to_begin()
        except apsw.Error as error:
            self._begun(error)
            return
        if is_begun:
            self._begun(None)
        else:
            self._in_thread(self._begin_patiently, self._begun)

    def _begin_patiently(self) -> None:
        for waited_ms in range(0, BUSY_TIMEOUT_MS, ASK_EVERY_MS):
            if (self._turnstile.enter() or waited_ms >= TURNSTILE_MS) and self._try_to_begin():
                return
            pause_thread(ASK_EVERY_MS)
        self._turnstile.leave()
        self._connection.execute("BEGIN IMMEDIATE")

    def _try_to_begin(self) -> bool:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        except apsw.Error:
            self._turnstile.leave()
            raise
        self._turnstile.leave()
        return True

    def _begun(self, error: Exception | None) -> None:
        batch = self._next_batch()
        answers: list[Any] = []
        try:
            if error is None:
                answers.extend(waiting.operation() for waiting in batch)
        except apsw.Error as failure:
            error = failure
        except Exception as failure:
            self._leave_out(batch, len(answers), failure)
            return
        if error is not None:
            self._roll_back()
            self._finish(batch, [], error)
        else:
            self._in_thread(self._commit, partial(self._finish, batch, answers))

    def _next_batch(self) -> list[_Waiting]:
        batch = [self._waiting.popleft()]
        weight = batch[0].weight
        while self._waiting and weight + self._waiting[0].weight <= LARGEST_TRANSACTION:
            batch.append(self._waiting.popleft())
            weight += batch[-1].weight
        return batch

    def _leave_out(self, batch: list[_Waiting], index: int, error: Exception) -> None:
        at_fault = batch.pop(index)
        at_fault.done(None, error)
        self._waiting.extendleft(reversed(batch))
        self._roll_back()
        self._next()

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except apsw.Error:
            self._roll_back()
            raise
        self._checkpoints.after_commit()

    def _roll_back(self) -> None:
        """Undoes what a failed batch left. If even that fails now, it is tried again before the next batch."""
        with suppress(apsw.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _finish(self, batch: list[_Waiting], answers: list[Any], error: Exception | None) -> None:
        if error is not None:
            answers = [None] * len(batch)
            error = StoreUnavailable(f"The SQLite file cannot be written ({error}); nothing was accepted.")
        for waiting, answer in zip(batch, answers, strict=True):
            waiting.done(answer, error)
        self._next()

    def _next(self) -> None:
        if self._waiting:
            self._loop.call_soon(self._begin)
        else:
            self._is_running = False

    async def _turn_of_thread(self) -> None:
        """Until the thread has done all that it was given so far."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._in_thread(lambda: None, lambda error: done.set_result(None))
        await done

    def _in_thread(self, job: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        self._jobs.put((job, then))

    def _work(self) -> None:
        while pair := self._jobs.get():
            job, then = pair
            try:
                job()
            except Exception as error:
                self._loop.call_soon_threadsafe(then, error)
            else:
                self._loop.call_soon_threadsafe(then, None)
