"""What waits to be written: items of calls, gathered in one job per conversation, and how much of it there is."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from turntake.buffer.engine.backend import Refusal
from turntake.buffer.engine.draft import NEW, Draft, Row
from turntake.buffer.store import HORIZON_MS, Hint
from turntake.rules.key import ConversationKey

# Some seconds of work for a busy database: whoever waits behind more had better be told to come again.
LONGEST_QUEUE = 50_000
# About a second of what a disk writes: a store that hangs costs no more memory than this, whatever people send.
LARGEST_QUEUE_BYTES = 64 << 20

T = TypeVar("T")


class Call(ABC, Generic[T]):
    """What one caller asked for: one or several items, of one or several conversations, answered together.

    Each item may be run several times, each time on a newer row; the last run's answer counts.
    """

    __slots__ = ("_error", "_missing", "future", "is_new")

    def __init__(self, loop: asyncio.AbstractEventLoop, items: int = 1, *, is_new: bool = False) -> None:
        """New work is refused while too much waits; what settles older work never is."""
        self.future: asyncio.Future[T] = loop.create_future()
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
    """One operation on one conversation. The operation is its only item."""

    __slots__ = ("_answer",)
    _answer: T

    def run(self, draft: Draft, item: Any) -> None:
        self._answer = item(draft)

    def answer(self) -> T:
        return self._answer


class Job(msgspec.Struct, gc=False, eq=False):
    """What waits for one conversation: items of calls, in order.

    They are one flat list. Few objects per conversation keep Python's garbage collector from starting in the middle of
    each batch, which costs more than all the rest of the queue.
    """

    key: ConversationKey
    row: Row = NEW
    is_fresh: bool = False
    known: frozenset[str] = frozenset()
    weight: int = 0
    size: int = 0
    refusals: int = 0
    kept_ms: int = 0
    draft: Draft = None  # type: ignore[assignment]  # until it is decided
    _items: list[Any] = []

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
        if not items or (self.is_fresh and not draft.body):
            self.succeed()
            return False
        return True

    def add_all(self, later: "Job") -> None:
        """What was submitted for the conversation since."""
        self._items += later._items
        self.weight += later.weight
        self.size += later.size

    def learn(self, refusal: Refusal) -> None:
        self.refusals += 1
        self.kept_ms = refusal.kept_ms
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
    if not any(refusals):
        return jobs, []
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


def news_for_handlers(taken: list[Draft]) -> Hint | None:
    """Word of answers that were stopped, and of messages that are offered to whoever answers. Only once they are
    stored: an answer that goes on after all must not be stopped."""
    stopped = tuple(
        (str(draft.key), closed.id, closed.epoch - 1)
        for draft in taken
        for closed in draft.closed
        if closed.is_withdrawn or (closed.status == "stopped" and closed.turn is not None)
    )
    offered = tuple(str(draft.key) for draft in taken if draft.is_offer)
    return Hint(taken[0].now + HORIZON_MS, stopped, offered=offered) if stopped or offered else None


class Backlog:
    """How much waits to be written in all queues of a store: rows, and the bytes of the messages among them."""

    __slots__ = ("rows", "size")

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0

    @property
    def is_full(self) -> bool:
        return self.rows >= LONGEST_QUEUE or self.size >= LARGEST_QUEUE_BYTES

    def add(self, job: Job) -> None:
        self.rows += job.weight
        self.size += job.size

    def clear(self) -> None:
        self.rows = self.size = 0

    def remove(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.rows -= job.weight
            self.size -= job.size
