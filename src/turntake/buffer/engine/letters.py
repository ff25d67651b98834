"""Dead letters, and what platforms report of replies later: verbs that start from the row of a turn.

How this works: a turn's row and its conversation's row are two reads. Whoever closes a turn, ends a letter or notes a
report writes the conversation too, so its version tells whether anybody did so meanwhile. The conversation is read
first and the turn after it; what was decided on both is then swapped, and decided again if it is refused.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from turntake.buffer.engine.backend import Backend
from turntake.buffer.engine.draft import Draft
from turntake.buffer.engine.history import FORGOTTEN_AT_ONCE, messages_of, shown_of
from turntake.buffer.engine.jobs import SingleCall
from turntake.buffer.engine.write_queue import ROUNDS, WriteQueue
from turntake.buffer.store import Hint, Letters, Page
from turntake.clock import Clock
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Closed, Conversation, ReplyReport
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import IsOurs, Letter, letter_of

T = TypeVar("T")

CROWDED = "Too many processes write to one conversation at once; try again."


class CasLetters(Letters):
    """The turns that ended as dead letters. `queue_of` gives the write queue of a conversation."""

    def __init__(self, backend: Backend, clock: Clock, queue_of: Callable[[ConversationKey], WriteQueue]) -> None:
        self._backend = backend
        self._clock = clock
        self._queue_of = queue_of

    async def list(self, limit: int, cursor: str = "") -> Page[Letter]:
        at, _, letter_id = cursor.partition("-")
        rows = await self._backend.archive.letters(limit + 1, (int(at), letter_id) if cursor else None)
        letters = tuple(letter_of(row.key, row.closed) for row in rows[:limit] if row.closed)
        return Page(letters, f"{letters[-1].at}-{letters[-1].id}" if len(rows) > limit else "")

    async def get(self, letter_id: str) -> Letter | None:
        row = await self._backend.archive.turn(letter_id)
        if row is None or row.closed is None or not row.is_letter:
            return None
        return letter_of(row.key, row.closed, await shown_of(self._backend, row))

    async def retry(self, letter_id: str) -> Conversation | None:
        return await self._end(letter_id, Draft.retry_letter)

    async def discard(self, letter_id: str) -> bool:
        return bool(await self._end(letter_id, Draft.discard_letter))

    async def discard_older(self, before: int) -> int:
        rows = await self._backend.archive.letters(FORGOTTEN_AT_ONCE, (before, ""))
        return sum([await self.discard(row.id) for row in rows])

    async def report(self, turn_id: str, report: ReplyReport, is_ours: IsOurs) -> ConversationKey | None:
        for _ in range(ROUNDS):
            turn = await self._backend.archive.turn(turn_id)
            if turn is None or not is_ours(turn.key):
                return None
            key = turn.key
            if turn.closed is None and await self._report_open(key, turn_id, report):
                return key
            (row,) = await self._backend.load([key])
            turn = await self._backend.archive.turn(turn_id)
            if turn is None or turn.closed is None or (turn.closed.is_letter and not turn.is_letter):
                return None
            draft = Draft(key, row, self._clock.now())
            if not draft.report_closed(turn.closed, report):
                return None
            if await self._is_taken(draft):
                return key
        raise StoreUnavailable(CROWDED)

    async def _report_open(self, key: ConversationKey, turn_id: str, report: ReplyReport) -> bool:
        """Whether it was news of a turn that is still open: then it is noted in the conversation."""
        call: SingleCall[bool] = SingleCall(asyncio.get_running_loop())
        self._queue_of(key).submit(key, call, lambda draft: draft.report(turn_id, report))
        return await call.future

    async def _end(self, letter_id: str, change: Callable[[Draft, Closed, tuple[Message, ...]], T]) -> T | None:
        """Ends a dead letter; None if there is none."""
        for _ in range(ROUNDS):
            letter = await self._backend.archive.turn(letter_id)
            if letter is None:
                return None
            (row,) = await self._backend.load([letter.key])
            letter = await self._backend.archive.turn(letter_id)
            if letter is None or letter.closed is None or not letter.is_letter:
                return None
            draft = Draft(letter.key, row, self._clock.now())
            messages = await messages_of(self._backend, letter)
            answer = change(draft, letter.closed, tuple(messages.values()))
            if await self._is_taken(draft, Hint(draft.now)):
                return answer
        raise StoreUnavailable(CROWDED)

    async def _is_taken(self, draft: Draft, hint: Hint | None = None) -> bool:
        """Whether the draft was written: nobody else wrote the conversation since it was read."""
        draft.encode()
        (refusal,) = await self._backend.swap(self._backend.shard_of(draft.key), [draft], hint)
        if refusal is None:
            self._queue_of(draft.key).remember(draft)
        return refusal is None
