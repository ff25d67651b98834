"""A write queue without a database: its backend in memory, and operations to submit."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from turntake.buffer.engine.backend import Backend, Refusal
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.engine.jobs import Backlog, SingleCall
from turntake.buffer.engine.row_cache import RowCache
from turntake.buffer.engine.write_queue import WriteQueue
from turntake.buffer.store import Hint
from turntake.errors import StoreUnavailable
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, OFF, PLAIN

Operation = Callable[[Draft], Appended]
T = TypeVar("T")


class FakeBackend:
    """What a write queue needs of a backend, in memory. It fails, stalls and refuses when it is told to.

    `errors` fail whole swaps, `unwritable` single drafts, and `unreadable` the loading of rows. `busy` conversations
    are always refused, and those in `kept` once, since nobody may write them for so many milliseconds. If `is_deaf` is
    set, the next draft is refused unread; with `refuses_then_fails`, the swap after one in which everything was refused
    fails. If `is_mute` is set, nothing can be published. Nothing is swapped while `gate` is closed.
    """

    def __init__(self) -> None:
        self.writers, self.batch = 2, 64
        self.hints = self
        self.published: list[Hint] = []
        self.rows: dict[ConversationKey, Row] = {}
        self.ids: dict[ConversationKey, set[str]] = {}
        self.batches: list[list[ConversationKey]] = []
        self.errors: list[Exception] = []
        self.is_deaf = False
        self.is_mute = False
        self.refuses_then_fails = False
        self.busy: set[ConversationKey] = set()
        self.kept: dict[ConversationKey, int] = {}
        self.asked_to_keep: list[int] = []
        self.unwritable: dict[ConversationKey, Exception] = {}
        self.unreadable: set[ConversationKey] = set()
        self.loaded: list[ConversationKey] = []
        self.refusals = 0
        self.under_way: list[ConversationKey] = []
        self.most_calls = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._calls = 0

    async def swap(self, shard: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        keys = [draft.key for draft in drafts]
        assert not set(keys) & set(self.under_way), "two writes to one conversation at a time"
        self.batches.append(keys)
        self.under_way += keys
        self._calls += 1
        self.most_calls = max(self.most_calls, self._calls)
        try:
            await self.gate.wait()
            if self.errors:
                raise self.errors.pop(0)
            answers = [self._put(draft) for draft in drafts]
        finally:
            self._calls -= 1
            self.under_way = [key for key in self.under_way if key not in keys]
        self.refusals += sum(answer is not None for answer in answers)
        if self.refuses_then_fails and None not in answers:
            self.errors.append(StoreUnavailable())
        if hint and None in answers:
            self.published.append(hint)
        return answers

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        if not self.unreadable.isdisjoint(keys):
            raise ValueError("a row that nobody can read")
        self.loaded += keys
        return [self.rows.get(key, Row()) for key in keys]

    async def publish(self, hint: Hint) -> None:
        if self.is_mute:
            raise StoreUnavailable
        self.published.append(hint)

    def _put(self, draft: Draft) -> Refusal | None:
        if draft.key in self.unwritable:
            return Refusal(draft.row, error=self.unwritable[draft.key])
        self.asked_to_keep.append(draft.keep_ms)
        if draft.key in self.kept:
            return Refusal(self.rows.get(draft.key, Row()), kept_ms=self.kept.pop(draft.key))
        if draft.key in self.busy:
            return Refusal(self.rows.get(draft.key, Row()))
        if self.is_deaf:
            self.is_deaf = False
            return Refusal(draft.row, is_read=False)
        row, ids = self.rows.get(draft.key, Row()), self.ids.setdefault(draft.key, set())
        known = frozenset(draft.added.keys() & ids)
        if known or row.version != draft.row.version:
            return Refusal(row, known)
        self.rows[draft.key] = draft.written
        ids.update(draft.added)
        return None


def queue_on(
    backend: FakeBackend, clock: VirtualClock, backlog: Backlog | None = None, rows: RowCache | None = None
) -> WriteQueue:
    return WriteQueue(cast(Backend, backend), 0, clock, backlog, rows)


def reading_first() -> RowCache:
    """Of a process that met many rows which it did not remember, and that were there."""
    rows = RowCache(0)
    for _ in range(30):
        rows.learn(True)
    return rows


def saying(message_id: str, key: ConversationKey = ANN, rules: Rules = PLAIN) -> Operation:
    return lambda draft: draft.append(Append(key, Message(message_id), rules), b"")


def at_once(message_id: str, key: ConversationKey = ANN) -> Operation:
    return saying(message_id, key, OFF)


def submitted(
    queue: WriteQueue, key: ConversationKey, operation: Callable[[Draft], T], *, is_new: bool = False, size: int = 0
) -> asyncio.Future[T]:
    call: SingleCall[T] = SingleCall(asyncio.get_running_loop(), is_new=is_new)
    queue.submit(key, call, operation, size=size)
    return call.future
