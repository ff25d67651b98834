"""What readers ask of a backend: turns, dead letters, conversations by deadline."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from turntake.buffer.cursor import Cursor
from turntake.buffer.engine.draft import Row
from turntake.rules.conversation import Closed
from turntake.rules.key import ConversationKey
from turntake.rules.records import ClosedPoint, IsChosen, Looked


class TurnRow(NamedTuple):
    """A turn as the store has it; `closed` is None while it is open."""

    key: ConversationKey
    id: str
    closed: Closed | None
    is_letter: bool

    @property
    def agent(self) -> str:
        return self.closed.turn.agent if self.closed and self.closed.turn else ""


class Archive(ABC):
    """What happened, and what is going on: rows for readers. Raises StoreUnavailable when it cannot be read."""

    @abstractmethod
    async def turn(self, turn_id: str) -> TurnRow | None: ...

    @abstractmethod
    async def turns(self, key: ConversationKey, limit: int, before: tuple[int, int] | None = None) -> list[TurnRow]:
        """The latest first: by the first message's number, then by the last's; from before these numbers."""

    @abstractmethod
    async def letters(self, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        """Dead letters by (time, id), the latest first, from before a point of that list."""

    @abstractmethod
    async def conversations(self, after: Cursor | None, limit: int) -> list[tuple[Cursor, Row]]:
        """By deadline, then key, from after a point of that list; idle ones last. Fewer than `limit` are the end of it.

        A row may have moved on since its entry was read. One of version 0 is none to show: it is gone, or it has a
        deadline and was passed over among the idle ones, so that no page takes longer where few are idle.
        """

    @abstractmethod
    async def due(self, after: Cursor | None, limit: int, now: int) -> list[tuple[int, str]]:
        """Deadlines and keys of up to `limit` conversations that are due by `now`, by deadline and then key, from after
        a point of that list. Nothing is read but the index, and nothing is kept from others."""

    @abstractmethod
    async def forget(self, before: int, ids_before: int, limit: int) -> int:
        """Drops up to `limit` turns closed earlier than `before`, no letters, with their messages. Ids go with them if
        the turn was closed earlier than `ids_before`, else they stay known until it was: up to `limit` of those left
        by earlier calls are dropped too. Drops conversations of which nothing is left by that. Answers how many."""

    @abstractmethod
    async def forget_chosen(
        self, is_chosen: IsChosen, after: ClosedPoint, before: int, ids_before: int, limit: int
    ) -> Looked:
        """Looks at up to `limit` turns closed after a point and earlier than `before`, by time and id, no letters, and
        drops those that are chosen, in the same way. Ids of turns that were dropped earlier are left alone."""


def looked(page: Sequence[TurnRow], forgotten: int, after: ClosedPoint, limit: int) -> Looked:
    """What became of a page of at most `limit` closed turns."""
    closed = [row.closed for row in page if row.closed is not None]
    last = ClosedPoint(closed[-1].at, closed[-1].id) if closed else after
    return Looked(forgotten, last, is_end=len(page) < limit)
