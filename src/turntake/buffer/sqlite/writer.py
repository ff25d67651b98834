"""One writer with group commit.

Operations run on the event loop: inside a transaction they only touch memory and take microseconds. The commit,
which waits for the disk, runs in a thread of its own. All operations that ask meanwhile share the next transaction,
so a lone message waits for nobody and a crowd shares one fsync.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import apsw

from turntake.errors import StoreUnavailable

BUSY_TIMEOUT_MS = 10_000
LARGEST_BATCH = 500
LONGEST_QUEUE = 50_000

T = TypeVar("T")
Operation = Callable[[], Any]
Waiting = tuple[Operation, "asyncio.Future[Any]", int]


class Writer:
    """Runs operations on its connection, several a transaction; `before_commit` is the last step of each."""

    def __init__(
        self, connection: apsw.Connection, on_begin: Callable[[], None], before_commit: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._on_begin = on_begin
        self._before_commit = before_commit
        self._waiting: deque[Waiting] = deque()
        self._weight = 0
        self._to_isolate = 0
        self._is_running = False
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="turntake-sqlite", daemon=True)
        self._thread.start()

    async def run(self, operation: Callable[[], T], weight: int = 1, *, is_new: bool = False) -> T:
        """The operation's answer, once it is on disk. Raises StoreUnavailable if it could not be put there.

        `weight` is how many rows it is about; a transaction takes so many that the event loop is not held up.
        New work is refused while too much waits; what settles older work never is.
        """
        if self._is_closed:
            raise StoreUnavailable("The store is closed.")
        if is_new and self._weight > LONGEST_QUEUE:
            raise StoreUnavailable("Too many writes are waiting for the disk; nothing was accepted, so send it later.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((operation, future, max(1, weight)))
        self._weight += max(1, weight)
        if not self._is_running:
            self._is_running = True
            self._loop.call_soon(self._begin)
        return await future

    async def close(self) -> None:
        """Waits for what is under way, then ends the thread."""
        self._is_closed = True
        while self._is_running:
            await self._in_thread(lambda: None)
        self._jobs.put(None)
        self._thread.join()

    def _begin(self) -> None:
        try:
            self._roll_back()
            self._connection.set_busy_timeout(0)
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            self._submit(self._begin_patiently, self._begun)
        except apsw.Error as error:
            self._begun(error)
        else:
            self._begun(None)

    def _begin_patiently(self) -> None:
        self._connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        self._connection.execute("BEGIN IMMEDIATE")

    def _begun(self, error: Exception | None) -> None:
        batch = self._next_batch()
        if error is not None:
            self._finish(batch, [], error)
            return
        try:
            self._on_begin()
            answers = self._run_all(batch)
            self._before_commit()
        except Exception as failure:
            self._roll_back()
            if len(batch) > 1 and not isinstance(failure, apsw.Error):
                self._isolate(batch)
            else:
                self._finish(batch, [], failure)
            return
        self._submit(self._commit, lambda error: self._finish(batch, answers, error))

    def _next_batch(self) -> list[Waiting]:
        largest = 1 if self._to_isolate else LARGEST_BATCH
        self._to_isolate = max(0, self._to_isolate - 1)
        batch = [self._waiting.popleft()]
        weight = batch[0][2]
        while self._waiting and weight + self._waiting[0][2] <= largest:
            batch.append(self._waiting.popleft())
            weight += batch[-1][2]
        self._weight -= weight
        return batch

    def _run_all(self, batch: list[Waiting]) -> list[Any]:
        return [operation() for operation, _, _ in batch]

    def _isolate(self, batch: list[Waiting]) -> None:
        """One caller's operation is at fault: each gets a transaction of its own, so that the others go through."""
        self._to_isolate = len(batch)
        self._waiting.extendleft(reversed(batch))
        self._weight += sum(weight for _, _, weight in batch)
        self._loop.call_soon(self._begin)

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except apsw.Error:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        """Undoes what a failed batch left. If even that fails now, it is tried again before the next batch."""
        with suppress(apsw.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _finish(self, batch: list[Waiting], answers: list[Any], error: Exception | None) -> None:
        if isinstance(error, apsw.Error):
            error = StoreUnavailable(f"The SQLite file cannot be written ({error}); nothing was accepted.")
        for index, (_, future, _) in enumerate(batch):
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(answers[index])
        if self._waiting:
            self._loop.call_soon(self._begin)
        else:
            self._is_running = False

    def _submit(self, job: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        def run() -> None:
            try:
                job()
            except Exception as error:
                self._loop.call_soon_threadsafe(then, error)
            else:
                self._loop.call_soon_threadsafe(then, None)

        self._jobs.put(run)

    async def _in_thread(self, job: Callable[[], None]) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._submit(job, lambda error: done.set_result(None))
        await done

    def _work(self) -> None:
        while job := self._jobs.get():
            job()
