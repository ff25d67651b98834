"""The port behind a shared store: where rows lie, and the one way to change them.

A shelf decides nothing. It gives out rows with their versions, and takes a draft only if its row's version is still
the one that was decided on: compare and swap. So the rules exist once, in Python, whatever server keeps the rows.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from turntake.buffer.codec import decode_conversation
from turntake.buffer.cursor import Place
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.store import Hint
from turntake.rules.conversation import Closed
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message

PAGE = 500
"""No request is about more rows than this."""

Messages = dict[int, Message]


class Refusal(NamedTuple):
    """The draft was not taken: the row is another by now, or holds some of the ids already. Decide again on this.

    A draft that came too late is refused unread: then `row` is the draft's own.
    """

    row: Row
    known: frozenset[str] = frozenset()
    is_read: bool = True
    error: Exception | None = None


def refused(version: int, body: bytes, known: Iterable[str]) -> Refusal:
    """What the store has. A row that nobody can read concerns its own conversation and no other in the batch."""
    try:
        return Refusal(Row(version, decode_conversation(body)) if version else Row(), frozenset(known))
    except msgspec.MsgspecError as error:
        return Refusal(Row(), error=error)


class Due(NamedTuple):
    """A due conversation on offer, with its open messages as far as they were read along."""

    key: ConversationKey
    row: Row
    messages: Messages


class TurnRow(NamedTuple):
    """A turn as the store has it; `closed` is None while it is open."""

    key: ConversationKey
    id: str
    closed: Closed | None
    is_letter: bool


class Shelf(ABC):
    """Entered and left with the store. Raises StoreUnavailable when the server does not answer."""

    lanes: int = 1
    """Rows in different lanes are written independently of each other."""

    flights: int = 2
    """How many writes of one lane may be under way at once."""

    batch: int = 64
    """The most drafts of one write."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def lane(self, key: ConversationKey) -> int:
        """The lane that this conversation is written in."""

    @abstractmethod
    async def swap(self, lane: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        """Writes each draft whole or not at all, durably, once, also if the reply is lost and the call repeated.

        An unchanged draft is only compared. All drafts are of this lane, at most PAGE, and no key comes twice.
        """

    @abstractmethod
    async def claim(self, limit: int, now: int, decide: Callable[[Due], Draft | None]) -> list[tuple[Due, Draft]]:
        """Offers up to `limit` due conversations, earliest first, and writes the drafts made of them.

        Those that somebody else changed meanwhile are left out.
        """

    @abstractmethod
    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        """The rows as they are now; unknown ones have version 0."""

    @abstractmethod
    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        """The stored messages of a range."""

    @abstractmethod
    async def next_due(self) -> int | None: ...

    @abstractmethod
    async def turn(self, turn_id: str) -> TurnRow | None: ...

    @abstractmethod
    async def turns(self, key: ConversationKey, limit: int) -> list[TurnRow]:
        """The latest first: by the first message's number, then by the last's."""

    @abstractmethod
    async def letters(self, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        """Dead letters by (time, id), the latest first, from before a place in that list."""

    @abstractmethod
    async def index(self, after: Place | None, limit: int) -> list[tuple[Place, Row]]:
        """Conversations by deadline, then key, from after a place on; idle ones last.

        A row may have moved on since its place was read.
        """

    @abstractmethod
    async def forget(self, before: int, limit: int) -> int:
        """Drops up to `limit` turns closed earlier than `before`, no letters, with their messages and ids."""

    @abstractmethod
    async def rebuild(self) -> int:
        """Writes every index anew from the conversations and turns alone; returns how many entries were wrong."""

    async def finish_upgrade(self) -> list[str]:
        """Takes the steps that had to wait until no older release runs; returns their names."""
        return []

    @abstractmethod
    async def announce(self, hint: Hint) -> None:
        """Says it to whoever listens."""

    async def hints(self) -> AsyncIterator[Hint]:
        """What other processes announce."""
        return
        yield
