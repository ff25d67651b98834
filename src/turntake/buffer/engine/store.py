"""The verbs of a store on a shelf: each is decided on a draft by the rules and written by compare and swap."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar, cast

from turntake.buffer.codec import encode
from turntake.buffer.engine.backend import Due, Shelf
from turntake.buffer.engine.draft import Draft
from turntake.buffer.engine.history import SharedHistory, closed_alike, found, messages_of, shown_of
from turntake.buffer.engine.write_queue import ROUNDS, Lane
from turntake.buffer.open import Maintained
from turntake.buffer.store import Hint, Letters, Page, Store
from turntake.clock import Clock
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Closed, Conversation, Progress, Retry, Settlement, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message, as_said, in_order
from turntake.rules.records import Append, Appended, Claim, Letter, Snapshot, letter_of
from turntake.rules.rules import Rules

T = TypeVar("T")


class SharedStore(Store, Maintained):
    """Opened and closed by `async with`; any number of processes on any number of machines may share the server."""

    def __init__(self, shelf: Shelf, clock: Clock) -> None:
        self.shelf = shelf
        self.clock = clock

    async def __aenter__(self) -> Self:
        await self.shelf.open()
        self._lanes = [Lane(self.shelf, number, self.clock) for number in range(self.shelf.lanes)]
        self.history = SharedHistory(self.shelf)
        self.letters = SharedLetters(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(lane.close() for lane in self._lanes))
        await self.shelf.close()

    async def append(self, arrivals: Sequence[Append]) -> list[Appended]:
        if len(arrivals) == 1:
            return await self._append(arrivals[0].key, arrivals)
        places: dict[ConversationKey, list[int]] = {}
        for place, arrival in enumerate(arrivals):
            places.setdefault(arrival.key, []).append(place)
        answers = await _all([self._append(key, [arrivals[p] for p in mine]) for key, mine in places.items()])
        by_place = {
            place: answer
            for mine, some in zip(places.values(), answers, strict=True)
            for place, answer in zip(mine, some, strict=True)
        }
        return [by_place[place] for place in range(len(arrivals))]

    async def touch(self, key: ConversationKey, order: Touch, rules: Rules) -> Conversation | None:
        return await self._submit(key, lambda draft: draft.touch(order, rules))

    async def claim(self, limit: int, lease_ms: int) -> list[Claim]:
        drafts = await self.shelf.claim(limit, self.clock.now(), lambda due: self._claimed(due, lease_ms))
        claims = [await self._claim(due, draft) for due, draft in drafts]
        return [claim for claim in claims if claim]

    async def extend(self, claims: Sequence[Claim], lease_ms: int) -> list[bool]:
        return await _all([self._extend(claim, lease_ms) for claim in claims])

    async def save(self, claim: Claim, progress: Progress) -> bool:
        return await self._submit(claim.key, lambda draft: draft.save(claim.epoch, progress))

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        if await self._submit(claim.key, lambda draft: draft.settle(claim.epoch, settlement)):
            return True
        return closed_alike(await self.shelf.turn(claim.turn.id), claim.epoch, settlement)

    async def next_due(self) -> int | None:
        return await self.shelf.next_due()

    async def find(self, key: ConversationKey) -> Snapshot | None:
        return await found(self.shelf, key)

    async def hints(self) -> AsyncIterator[Hint]:
        async for hint in self.shelf.hints():
            yield hint

    async def rebuild(self) -> int:
        return await self.shelf.rebuild()

    async def finish_upgrade(self) -> list[str]:
        return await self.shelf.finish_upgrade()

    async def end_letter(self, letter_id: str, change: Callable[[Draft, Closed, tuple[Message, ...]], T]) -> T | None:
        """Ends a dead letter; None if there is none. Whoever ends one writes its conversation, so the version tells
        whether somebody else did so between reading the letter and writing."""
        for _ in range(ROUNDS):
            letter = await self.shelf.turn(letter_id)
            if letter is None:
                return None
            (row,) = await self.shelf.load([letter.key])
            letter = await self.shelf.turn(letter_id)
            if letter is None or letter.closed is None or not letter.is_letter:
                return None
            draft = Draft(letter.key, row, self.clock.now())
            messages = await messages_of(self.shelf, letter)
            answer = change(draft, letter.closed, tuple(messages.values()))
            draft.encode()
            lane = self.shelf.lane(letter.key)
            (refusal,) = await self.shelf.swap(lane, [draft], Hint(draft.now))
            if refusal is None:
                self._lanes[lane].remember(letter.key, draft.written)
                return answer
        raise StoreUnavailable("Too many processes write to one conversation at once; try again.")

    def _append(self, key: ConversationKey, arrivals: Sequence[Append]) -> "asyncio.Future[list[Appended]]":
        payloads = [encode(arrival.message) for arrival in arrivals]
        return self._lane(key).submit(key, lambda draft: list(map(draft.append, arrivals, payloads)), is_new=True)

    def _extend(self, claim: Claim, lease_ms: int) -> "asyncio.Future[bool]":
        return self._submit(claim.key, lambda draft: draft.extend(claim.epoch, lease_ms))

    def _claimed(self, due: Due, lease_ms: int) -> Draft | None:
        draft = Draft(due.key, due.row, self.clock.now())
        if draft.claim(lease_ms) is None:
            return None
        draft.encode()
        return draft

    async def _claim(self, due: Due, draft: Draft) -> Claim | None:
        """The claim with its messages; one whose messages cannot be had now is handed back at once."""
        self._lane(due.key).remember(due.key, draft.written)
        turn = draft.conversation.turn
        assert turn is not None
        seqs = range(turn.head, turn.tail + 1)
        messages = due.messages
        try:
            if any(seq not in messages for seq in seqs):
                messages = await self.shelf.messages(due.key, turn.head, turn.tail)
        except StoreUnavailable:
            with suppress(StoreUnavailable):
                await self.settle(Claim(due.key, draft.conversation.epoch, turn, ()), Retry(0, is_failure=False))
            return None
        shown = in_order(as_said(messages[seq] for seq in seqs if seq in messages))
        return Claim(due.key, draft.conversation.epoch, turn, shown)

    def _submit(self, key: ConversationKey, operation: Callable[[Draft], T]) -> "asyncio.Future[T]":
        return self._lane(key).submit(key, operation)

    def _lane(self, key: ConversationKey) -> Lane:
        return self._lanes[self.shelf.lane(key)]


class SharedLetters(Letters):
    """The turns that ended as dead letters."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._shelf = store.shelf

    async def list(self, limit: int, cursor: str = "") -> Page[Letter]:
        at, _, letter_id = cursor.partition("-")
        rows = await self._shelf.letters(limit + 1, (int(at), letter_id) if cursor else None)
        letters = tuple(letter_of(row.key, row.closed) for row in rows[:limit] if row.closed)
        return Page(letters, f"{letters[-1].at}-{letters[-1].id}" if len(rows) > limit else "")

    async def get(self, letter_id: str) -> Letter | None:
        row = await self._shelf.turn(letter_id)
        if row is None or row.closed is None or not row.is_letter:
            return None
        return letter_of(row.key, row.closed, await shown_of(self._shelf, row))

    async def retry(self, letter_id: str) -> Conversation | None:
        return await self._store.end_letter(letter_id, Draft.retry_letter)

    async def discard(self, letter_id: str) -> bool:
        return bool(await self._store.end_letter(letter_id, Draft.discard_letter))


async def _all(answers: "Sequence[asyncio.Future[T]]") -> list[T]:
    """Every answer, once all are there; the first error if any failed."""
    results = await asyncio.gather(*answers, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], results)
