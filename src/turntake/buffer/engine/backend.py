"""The ports behind a durable store: where rows lie, and the one way to change them.

How this works: a backend decides nothing. It gives out rows with their versions, and takes a draft only if its row
still has the version that was decided on: compare and swap. So every verb exists once, in `engine/draft.py`, whatever
database keeps the rows.

    CasStore ── WriteQueue ── Backend.swap      every verb that changes one conversation
       │
       ├── Backend.offer ── Offer.take          a claim
       ├── DueList ── Archive.due               who is claimed first, if not all can be
       ├── Backend.load, messages, next_due     what a verb must know first
       ├── Archive                              what happened: for readers, settlements and dead letters
       ├── Documents                            what the installation shares beside its conversations
       ├── NotedTime                            the latest time that any process saw
       ├── HintChannel                          optional: word between processes, which may be lost
       └── Lookout                              optional: many workers share the deadlines out

Whoever writes a backend begins with `Backend`, `Offer`, `Archive`, `Documents` and `NotedTime`; with those alone,
contract and machine pass. Hints make several processes quick, a lookout makes many of them cheap.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import msgspec

from turntake.buffer.documents import Documents
from turntake.buffer.engine.archive import Archive
from turntake.buffer.engine.draft import NEW, Draft, Row, row_of
from turntake.buffer.engine.hints import HintChannel, NoHints
from turntake.buffer.engine.lookout import Lookout
from turntake.buffer.engine.noted_time import NotedTime
from turntake.buffer.store import Hint
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message

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
        return Refusal(row_of(version, body), frozenset(known), kept_ms=kept_ms)
    except msgspec.MsgspecError as error:
        return Refusal(NEW, error=error)


class Due(NamedTuple):
    """A due conversation on offer, with its open messages as far as they were read along."""

    key: ConversationKey
    row: Row
    messages: Messages


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


class Backend(ABC):
    """Opened and closed by its store. Raises StoreUnavailable when the database does not answer."""

    shards: int = 1
    """Rows in different shards are written independently of each other. Known once the backend is open."""

    writers: int = 2
    """How many swaps of one shard may be under way at once: with two, one is decided while the other travels."""

    batch: int = 64
    """The most drafts of one swap: enough to share a round trip, few enough that nobody waits long behind it."""

    archive: Archive
    documents: Documents
    noted_time: NotedTime
    hints: HintChannel = NoHints()
    lookout: Lookout | None = None
    """None if workers do not share the deadlines out: then each looks at all of them."""

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
    def offer(
        self, limit: int, now: int, among: Sequence[ConversationKey] | None = None
    ) -> AbstractAsyncContextManager[Offer]:
        """Up to `limit` conversations that are due by `now`. A row that nobody can read is put off and left out.

        With `among`, which has at most `limit`, those of these that are due, in this order.

        Between entering and `take` the caller waits for nothing, since a database may hold locks meanwhile.
        """

    @abstractmethod
    async def next_due(self) -> int | None:
        """The earliest deadline of any conversation."""

    async def probe(self) -> None:
        """Raises StoreUnavailable unless the database takes writes, as far as can be told without one."""
        await self.next_due()
