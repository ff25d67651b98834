"""The verbs of a durable store: each is decided on a draft by the rules and written by compare and swap.

How this works: append, touch, extend, save and settle concern one conversation each. They go to the write queue of its
shard, which decides them on a `Draft` and has the backend swap the row. A claim starts from the backend's index of
deadlines instead: the backend offers due conversations and keeps them from others for a moment, each is decided on a
draft, and the offer takes those drafts. Dead letters start from the row of a turn, and have a file of their own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from turntake.buffer.codec import encode
from turntake.buffer.cursor import Cursor
from turntake.buffer.engine.backend import PAGE, Backend, Due
from turntake.buffer.engine.draft import Draft
from turntake.buffer.engine.due_list import DueList
from turntake.buffer.engine.history import CasHistory, snapshot
from turntake.buffer.engine.jobs import Backlog, Call, SingleCall
from turntake.buffer.engine.letters import CasLetters
from turntake.buffer.engine.lookout import LoneLookout, Lookout
from turntake.buffer.engine.row_cache import RowCache
from turntake.buffer.engine.write_queue import WriteQueue
from turntake.buffer.open import Clocked
from turntake.buffer.store import HORIZON_MS, Hint, Store
from turntake.clock import Clock
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Conversation, Lease, Progress, Retry, Settlement, Touch
from turntake.rules.fairness import ClaimOrder
from turntake.rules.key import ConversationKey
from turntake.rules.message import as_said, in_order
from turntake.rules.records import Append, Appended, Claim, Snapshot
from turntake.rules.rules import RulesByAgent
from turntake.rules.transitions import is_same
from turntake.rules.watch import ALONE, LIVING_MS, Place, may_claim_at, place_of, wake_at

# Whoever loses a due conversation to somebody quicker asks for others; ten times in a row, there is enough for all.
CLAIM_ROUNDS = 10

T = TypeVar("T")


class CasStore(Store, Clocked):
    """Opened and closed by `async with`. Any number of processes may share what the backend keeps."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self.backend = backend
        self.clock = clock
        self._backlog = Backlog()
        self._place = ALONE
        self._joined_at = 0
        self._check: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        await self.backend.open()
        self._loop = asyncio.get_running_loop()  # asked once: it costs a system call
        self._lookout: Lookout = self.backend.lookout or LoneLookout(self.backend.next_due)
        self._rows = RowCache()
        self._due_list = DueList(self.backend)
        self._queues = [self._new_queue(shard) for shard in range(self.backend.shards)]
        self.history = CasHistory(self.backend)
        self.documents = self.backend.documents
        self.letters = CasLetters(self.backend, self.clock, self._queue)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(queue.close() for queue in self._queues))
        await self.backend.close()

    async def append(self, arrivals: Sequence[Append]) -> list[Appended]:
        if len(arrivals) == 1:
            (arrival,) = arrivals
            payload = encode(arrival.message)
            single = _SingleAppend(self._loop, is_new=True)
            self._queue(arrival.key).submit(arrival.key, single, (arrival, payload), 1, len(payload))
            return [await single.future]
        indexes: dict[ConversationKey, int | list[int]] = {}
        for index, arrival in enumerate(arrivals):
            known = indexes.get(arrival.key)
            if known is None:
                indexes[arrival.key] = index
            elif isinstance(known, int):
                indexes[arrival.key] = [known, index]
            else:
                known.append(index)
        if not indexes:
            return []
        call = _AppendCall(self._loop, arrivals, len(indexes))
        for key, own in indexes.items():
            call.submit_to(self._queue(key), key, own)
        return await call.future

    async def touch(self, key: ConversationKey, touch: Touch, rules: RulesByAgent) -> Conversation | None:
        return await self._submit(key, lambda draft: draft.touch(touch, rules))

    async def claim(self, limit: int, lease_ms: int, order: ClaimOrder | None = None) -> list[Claim]:
        claimed: list[tuple[Due, Draft]] = []
        among: list[ConversationKey] | None = None
        for _ in range(CLAIM_ROUNDS):
            if order is not None:
                among = await self._due_list.first(order, limit, self.clock.now())
                self._due_list.forget(among)
                if not among:
                    break
            async with self.backend.offer(limit, self.clock.now(), among) as offer:
                now = self.clock.now()
                drafts = [(due, Draft(due.key, due.row, now)) for due in offer.due]
                sealed = [(due, draft) for due, draft in drafts if draft.claim(lease_ms)]
                if len(sealed) < len(drafts):
                    await offer.repair([due for due, draft in drafts if not draft.is_changed])
                for _, draft in sealed:
                    draft.encode()
                taken = await offer.take([draft for _, draft in sealed]) if sealed else []
            claimed = [pair for pair, is_ours in zip(sealed, taken, strict=True) if is_ours]
            if claimed or not (offer.due or among):
                break
        claims = [await self._with_messages(due, draft) for due, draft in claimed]
        return [claim for claim in claims if claim]

    async def extend(self, claims: Sequence[Claim], lease_ms: int, lease: Lease | None = None) -> list[bool | None]:
        """Each claim is a call of its own: one shard that is away says nothing about the claims in others."""
        asked = [self._submit(claim.key, _extension(claim, lease_ms, lease)) for claim in claims]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        for error in errors:
            if len(errors) == len(answers) or not isinstance(error, StoreUnavailable):
                raise error
        return [None if isinstance(answer, BaseException) else answer for answer in answers]

    async def save(self, claim: Claim, progress: Progress, lease_ms: int = 0) -> bool:
        return await self._submit(claim.key, lambda draft: draft.save(claim, progress, lease_ms))

    async def absorb(self, claim: Claim, rules: RulesByAgent) -> Claim | None:
        turn = await self._submit(claim.key, lambda draft: draft.absorb(claim, rules))
        if turn is None:
            return None
        messages = await self.backend.messages(claim.key, turn.head, turn.tail)
        return Claim(claim.key, claim.epoch, turn, in_order(as_said(messages.values())))

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        if await self._submit(claim.key, lambda draft: draft.settle(claim, settlement)):
            return True
        row = await self.backend.archive.turn(claim.turn.id)
        return row is not None and row.closed is not None and is_same(row.closed, claim, settlement)

    async def next_due(self) -> int | None:
        return await self.backend.next_due()

    async def find(self, key: ConversationKey) -> Snapshot | None:
        return await snapshot(self.backend, key)

    async def check(self) -> None:
        """Whoever asks meanwhile shares the answer: anybody may ask, and on a server each look is a write."""
        if self._check is None or self._check.done():
            self._check = asyncio.ensure_future(self.backend.probe())
        await asyncio.shield(self._check)

    async def join(self, worker: str) -> None:
        """Whoever cannot be told who else lives takes care of everything itself, after a while."""
        now = self.clock.now()
        try:
            self._take_place(place_of(worker, await self._lookout.join(worker, now)))
            self._joined_at = now
        except StoreUnavailable:
            if now - self._joined_at > LIVING_MS:
                self._take_place(ALONE)
            raise

    async def leave(self, worker: str) -> None:
        await self._lookout.leave(worker)

    async def next_look(self) -> int | None:
        return await self._lookout.next_look(self.clock.now())

    def wake_at(self, key: ConversationKey, due_at: int) -> int:
        """Whoever watches it may not have been told: what was set here is looked after from here, a moment later."""
        if self._place == ALONE:
            return due_at
        shard = self.backend.shard_of(key)
        return may_claim_at(self._place, shard, self.backend.shards, due_at)

    async def hints(self) -> AsyncIterator[Hint]:
        """Each with the time when this process wakes for it; a horizon later for those that others watch."""
        async for hint in self.backend.hints.listen():
            wakes = [hint.due_at + HORIZON_MS]
            for due_at in (hint.due_at, *hint.later):
                woken_at = wake_at(self._place, hint.shard, self.backend.shards, due_at)
                if woken_at is not None:
                    self._lookout.expect(hint.shard, due_at)
                    wakes.append(woken_at)
            yield Hint(min(wakes), hint.interrupted, offered=hint.offered)

    def _take_place(self, place: Place) -> None:
        self._place = place
        self._lookout.take_place(place)

    async def reset_clock(self) -> int:
        at, noted_at = await self.backend.noted_time.read()
        ahead_ms = noted_at - at
        if ahead_ms <= 0:
            return 0
        after: Cursor | None = None
        while waiting := await self._waiting(after):
            # Each moves to an earlier place of the list, so none is met twice.
            after = waiting[-1]
            keys = [ConversationKey.parse(cursor.key) for cursor in waiting]
            await asyncio.gather(*(self._submit(key, lambda draft: draft.set_back(ahead_ms)) for key in keys))
        await self.backend.noted_time.set(at)
        return ahead_ms

    async def _waiting(self, after: Cursor | None) -> list[Cursor]:
        """Some of the conversations with a deadline, the earliest first."""
        listed = await self.backend.archive.conversations(after, PAGE)
        return [cursor for cursor, _ in listed if cursor.due_at is not None]

    async def _with_messages(self, due: Due, draft: Draft) -> Claim | None:
        """The claim with its messages; one whose messages are away is handed back, and costs nobody else's."""
        self._queue(due.key).remember(draft)
        turn = draft.conversation.turn
        assert turn is not None
        seqs = range(turn.head, turn.tail + 1)
        messages = due.messages
        try:
            if not all(map(messages.__contains__, seqs)):
                messages = await self.backend.messages(due.key, turn.head, turn.tail)
        except StoreUnavailable:
            with suppress(StoreUnavailable):
                await self.settle(Claim(due.key, draft.conversation.epoch, turn, ()), Retry(0, is_failure=False))
            return None
        shown = in_order(as_said([messages[seq] for seq in seqs if seq in messages]))
        return Claim(due.key, draft.conversation.epoch, turn, shown)

    def _new_queue(self, shard: int) -> WriteQueue:
        return WriteQueue(self.backend, shard, self.clock, self._backlog, self._rows)

    def _submit(self, key: ConversationKey, operation: Callable[[Draft], T]) -> "asyncio.Future[T]":
        call: SingleCall[T] = SingleCall(self._loop)
        self._queue(key).submit(key, call, operation)
        return call.future

    def _queue(self, key: ConversationKey) -> WriteQueue:
        return self._queues[self.backend.shard_of(key)]


class _SingleAppend(SingleCall[Appended]):
    """An arrival and its bytes are the only item."""

    __slots__ = ()

    def run(self, draft: Draft, item: Any) -> None:
        self._answer = draft.append(*item)


class _AppendCall(Call[list[Appended]]):
    """An item is the index of a conversation's arrival, or those of several, so that all or none of them are stored."""

    __slots__ = ("_answers", "_arrivals", "_payloads")

    def __init__(self, loop: asyncio.AbstractEventLoop, arrivals: Sequence[Append], items: int) -> None:
        super().__init__(loop, items, is_new=True)
        self._arrivals = arrivals
        self._payloads = [encode(arrival.message) for arrival in arrivals]
        self._answers: list[Any] = [None] * len(arrivals)

    def submit_to(self, queue: WriteQueue, key: ConversationKey, item: int | list[int]) -> None:
        if isinstance(item, int):
            queue.submit(key, self, item, 1, len(self._payloads[item]))
        else:
            queue.submit(key, self, item, len(item), sum(len(self._payloads[index]) for index in item))

    def run(self, draft: Draft, item: int | list[int]) -> None:
        if isinstance(item, int):
            self._answers[item] = draft.append(self._arrivals[item], self._payloads[item])
        else:
            for index in item:
                self.run(draft, index)

    def answer(self) -> list[Appended]:
        return self._answers


def _extension(claim: Claim, lease_ms: int, lease: Lease | None) -> Callable[[Draft], bool]:
    return lambda draft: draft.extend(claim, lease_ms, lease)
