"""The ports behind a durable store: where rows lie, and the one way to change them.

How this works: a backend decides nothing. It gives out rows with their versions, and takes a draft only if its row
still has the version that was decided on: compare and swap. So every verb exists once, in `engine/draft.py`, whatever
database keeps the rows.

    CasStore ── WriteQueue ── Backend.swap      every verb that changes one conversation
       │
       ├── Backend.offer ── Offer.take          a claim
       ├── Backend.load, messages, next_due     what a verb must know first
       ├── Archive                              what happened: for readers, settlements and dead letters
       └── HintChannel                          word between processes, which may be lost
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import msgspec

from turntake.buffer.codec import decode_conversation
from turntake.buffer.cursor import Cursor
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.store import Hint
from turntake.rules.conversation import Closed
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.watch import Place

PAGE = 500
"""No request is about more rows than this, so that none keeps a server from others for more than milliseconds."""

UNREADABLE_MS = 60_000
"""When to look again at what cannot be read: often enough for whoever repairs it or upgrades, and rare enough for the
log."""

Messages = dict[int, Message]


class Refusal(NamedTuple):
    """The draft was not taken: the row is another by now, or holds some of the ids already. Decide again on this.

    A draft that came too late is refused unread: then `row` is the draft's own. A row that is kept for another process,
    which was refused again and again, is written by nobody else for `kept_ms`.
    """

    row: Row
    known: frozenset[str] = frozenset()
    is_read: bool = True
    error: Exception | None = None
    kept_ms: int = 0


def refused(version: int, body: bytes, known: Iterable[str], kept_ms: int = 0) -> Refusal:
    """What the store has. A row that nobody can read concerns its own conversation and no other in the batch."""
    try:
        row = Row(version, decode_conversation(body)) if version else Row()
        return Refusal(row, frozenset(known), kept_ms=kept_ms)
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


class Offer(ABC):
    """Due conversations, kept from other workers for a moment. What is neither taken nor repaired is due as before."""

    due: Sequence[Due]
    """Earliest first; a tie goes by the key."""

    @abstractmethod
    async def take(self, drafts: Sequence[Draft]) -> list[bool]:
        """Writes the claims that were decided on some of `due`; for each, whether it is ours now.

        Called once at most. A claim that somebody else's write made impossible is left out; one whose reply was lost is
        sent again and is still one claim.
        """

    @abstractmethod
    async def repair(self, wrong: Sequence[Due]) -> None:
        """These were due by the index and are not by their rows: the index is set right, or they would come up for
        ever. Called before `take`."""


class Archive(ABC):
    """What happened, and what is going on: rows for readers. Raises StoreUnavailable when it cannot be read."""

    @abstractmethod
    async def turn(self, turn_id: str) -> TurnRow | None: ...

    @abstractmethod
    async def turns(self, key: ConversationKey, limit: int) -> list[TurnRow]:
        """The latest first: by the first message's number, then by the last's."""

    @abstractmethod
    async def letters(self, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        """Dead letters by (time, id), the latest first, from before a point of that list."""

    @abstractmethod
    async def conversations(self, after: Cursor | None, limit: int) -> list[tuple[Cursor, Row]]:
        """By deadline, then key, from after a point of that list; idle ones last.

        A row may have moved on since its entry was read.
        """

    @abstractmethod
    async def forget(self, before: int, ids_before: int, limit: int) -> int:
        """Drops up to `limit` turns closed earlier than `before`, no letters, with their messages. Ids go with them if
        the turn was closed earlier than `ids_before`, else they stay known until it was: up to `limit` of those left
        by earlier calls are dropped too. Drops conversations of which nothing is left by that. Answers how many."""


class HintChannel(ABC):
    """Word from one process to the others. It may be lost: then they look again within the horizon."""

    @abstractmethod
    async def publish(self, hint: Hint) -> None: ...

    @abstractmethod
    def listen(self) -> AsyncIterator[Hint]:
        """What other processes publish, for as long as one listens."""


class NoHints(HintChannel):
    """For a backend that cannot carry them: other processes look once a horizon."""

    async def publish(self, hint: Hint) -> None:
        return None

    async def listen(self) -> AsyncIterator[Hint]:
        return
        yield


class Backend(ABC):
    """Opened and closed by its store. Raises StoreUnavailable when the database does not answer."""

    shards: int = 1
    """Rows in different shards are written independently of each other. Known once the backend is open."""

    writers: int = 2
    """How many swaps of one shard may be under way at once: with two, one is decided while the other travels."""

    batch: int = 64
    """The most drafts of one swap: enough to share a round trip, few enough that nobody waits long behind it."""

    loads_first: bool = False
    """Whether a row that nobody here remembers is loaded before it is decided on. Else it is taken for new, and the
    refusal says what there is: better where each question is a round trip."""

    archive: Archive
    hints: HintChannel = NoHints()

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def shard_of(self, key: ConversationKey) -> int: ...

    @abstractmethod
    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        """The rows as they are now; unknown ones have version 0."""

    @abstractmethod
    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        """The stored messages of a range."""

    @abstractmethod
    async def swap(self, shard: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        """Writes each draft whole or not at all, durably, once, also if the reply is lost and the call repeated.

        An unchanged draft is only compared. All drafts are of this shard, at most PAGE, and no key comes twice.
        The hint is published if any draft is taken.
        """

    @abstractmethod
    def offer(self, limit: int, now: int) -> AbstractAsyncContextManager[Offer]:
        """Up to `limit` conversations that are due by `now`. A row that nobody can read is put off and left out.

        Between entering and `take` the caller waits for nothing, since a database may hold locks meanwhile.
        """

    @abstractmethod
    async def next_due(self) -> int | None:
        """The earliest deadline of any conversation."""

    @abstractmethod
    async def times(self) -> tuple[int, int]:
        """What the clock that counts says, and the latest time that any process noted; 0 if none did."""

    @abstractmethod
    async def note_time(self, at: int) -> None:
        """Takes `at` for the latest time that any process noted, also if that was later."""

    async def probe(self) -> None:
        """Raises StoreUnavailable unless the database takes writes, as far as can be told without one."""
        await self.next_due()

    # Many workers on one database share the deadlines out (rules/watch.py). A backend that does not take part leaves
    # these as they are: every worker then looks at everything.

    async def living(self, worker: str, now: int) -> list[str]:
        """Notes that the worker lives, and returns all that do."""
        return [worker]

    async def leave(self, worker: str) -> None:
        """The worker ends, and need not be counted on until it is missed."""
        return None

    def take_place(self, place: Place) -> None:
        """From here on, offers and looks are only of what falls to this place, and of what is overdue."""
        return None

    def expect(self, shard: int, due_at: int) -> None:
        """Somebody else set this deadline."""
        return None

    async def next_look(self, now: int) -> int | None:
        """When this process must look for due conversations next; None if nothing waits for it."""
        return await self.next_due()
