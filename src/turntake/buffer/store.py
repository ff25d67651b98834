"""The port: what a store promises. Adapters live beside it and decide nothing of their own."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

import msgspec

from turntake.buffer.documents import Documents
from turntake.clock import Clock
from turntake.rules.conversation import Conversation, Lease, Progress, ReplyReport, Settlement, Touch
from turntake.rules.fairness import ClaimOrder
from turntake.rules.key import ConversationKey
from turntake.rules.records import (
    Append,
    Appended,
    Claim,
    ClosedPoint,
    IsChosen,
    IsOurs,
    Letter,
    Looked,
    Snapshot,
    TurnRecord,
)
from turntake.rules.rules import RulesByAgent

T = TypeVar("T")

HORIZON_MS = 1_000
"""Whoever waits for a deadline looks again after this long at the latest. It is what a lost hint costs: a person hardly
notices one more second, and a store hardly notices one question per worker and second."""


class Query(msgspec.Struct, frozen=True):
    """Which conversations to list; an empty field means any. `state` is a conversation's status. Of `tenants`, None
    means any, and an empty one none."""

    state: str = ""
    tenant: str = ""
    channel: str = ""
    limit: int = 50
    cursor: str = ""
    tenants: frozenset[str] | None = None

    def matches(self, key: ConversationKey, conversation: Conversation) -> bool:
        return (
            self.state in ("", conversation.status)
            and self.tenant in ("", key.tenant)
            and self.channel in ("", key.channel)
            and (self.tenants is None or key.tenant in self.tenants)
        )


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some items, and the cursor for the next ones (empty at the end)."""

    items: tuple[T, ...]
    cursor: str = ""


class Hint(msgspec.Struct, frozen=True, array_like=True):
    """Another process set deadlines before the horizon, or stopped running answers (their keys, turns and epochs).

    `due_at` is the earliest, `later` are others; all are of conversations in one shard. `offered` are the keys of
    conversations in which something waits that whoever answers may absorb.
    """

    due_at: int
    interrupted: tuple[tuple[str, str, int], ...] = ()
    shard: int = 0
    later: tuple[int, ...] = ()
    offered: tuple[str, ...] = ()


class History(ABC):
    """What happened, and what is going on."""

    @abstractmethod
    async def turn(self, turn_id: str) -> TurnRecord | None:
        """A turn, open or closed; None if there never was one or it has been forgotten."""

    @abstractmethod
    async def turns(self, key: ConversationKey, limit: int, before: tuple[int, int] | None = None) -> list[TurnRecord]:
        """The latest turns of a conversation, newest first, from before the turn with this range of messages."""

    @abstractmethod
    async def conversations(self, query: Query) -> Page[tuple[ConversationKey, Conversation]]:
        """The conversations that match, those due first first; idle ones come last. A tie goes by the key.

        A page is a bounded amount of work: where few of many match, it may have fewer than `limit` or none, and a
        cursor that leads on.
        """

    @abstractmethod
    async def forget(self, before: int, ids_before: int | None = None) -> int:
        """Drops turns closed earlier than `before`, with their messages; what is open or dead stays.

        The ids of their messages stay known until the turn was closed earlier than `ids_before` too, which is `before`
        unless it is said. A conversation of which nothing is left is dropped. Returns how many turns, and ids of turns
        dropped before, are gone now; calls with a lot to drop do a bounded part of it.
        """

    @abstractmethod
    async def forget_chosen(
        self, is_chosen: IsChosen, after: ClosedPoint, before: int, ids_before: int | None = None
    ) -> Looked:
        """Looks at a bounded part of the turns that closed after a point and earlier than `before`, and drops those
        that are chosen, as `forget` does. Whoever goes on from where it looked sees each turn once."""


class Letters(ABC):
    """The dead letters: messages that nobody answered, until somebody retries or discards them."""

    @abstractmethod
    async def list(self, limit: int, cursor: str = "") -> Page[Letter]:
        """The latest first, without their messages."""

    @abstractmethod
    async def get(self, letter_id: str) -> Letter | None:
        """One letter with its messages."""

    @abstractmethod
    async def retry(self, letter_id: str) -> Conversation | None:
        """If its answer is complete, what has not left of it is sent, under the turn's id, after the turn that may be
        under way; the agent is not asked. Else its messages wait in their conversation again, due at once.

        None if there is no such letter.
        """

    @abstractmethod
    async def report(self, turn_id: str, report: ReplyReport, is_ours: IsOurs) -> ConversationKey | None:
        """Notes with a turn what a platform says became of one of its replies. If the reply failed, the turn becomes a
        dead letter that has its answer: at once if it is over, else when it is answered.

        The conversation whose turn it is; None if the report is no news, if there is no such turn any more, or if
        `is_ours` says that the report cannot be about it.
        """

    @abstractmethod
    async def discard(self, letter_id: str) -> bool:
        """No longer a dead letter; the turn stays in the history."""

    @abstractmethod
    async def discard_older(self, before: int) -> int:
        """Discards letters that are older than `before`; returns how many. A lot of them take several calls."""


class Store(ABC):
    """Where buffers live. Every verb is durable once it returns, atomic for each conversation, and decided by
    `rules/transitions.py`.

    A verb that cannot be carried out, or of which nobody knows whether it was, raises StoreUnavailable. Every verb may
    be repeated.
    The store's clock is the only clock: no verb takes a time.
    """

    clock: Clock
    history: History
    letters: Letters
    documents: Documents

    @abstractmethod
    async def append(self, arrivals: Sequence[Append]) -> list[Appended]:
        """Buffers all messages. An id its conversation already holds, or held of late, changes nothing.

        An amendment is kept only where something waits, and moves no deadline. Amendments themselves are never shown:
        whoever reads messages gets them as they were amended while they waited.

        A call that raises buffered all of a conversation's messages or none of them: whoever sends it again is safe.
        """

    @abstractmethod
    async def touch(self, key: ConversationKey, touch: Touch, rules: RulesByAgent) -> Conversation | None:
        """Carries out a sign or an order; None if the conversation is unknown."""

    @abstractmethod
    async def claim(self, limit: int, lease_ms: int, order: ClaimOrder | None = None) -> list[Claim]:
        """Takes up to `limit` due conversations, earliest first, none of which anybody else can hold.

        With `order`, those that it puts first instead. A store that knows nothing of that may leave it out of account.

        A claim seals the messages waiting at that moment, or takes a sealed turn again whose retry is due or
        whose lease ran out. It removes nothing. A tie goes by the key.
        """

    @abstractmethod
    async def extend(self, claims: Sequence[Claim], lease_ms: int, lease: Lease | None = None) -> Sequence[bool | None]:
        """For each claim, whether it still holds; if so its lease runs `lease_ms` from now.

        None if nobody can say, since the claim's part of the store does not answer. Raises if that is so of all.
        With `lease`, it is a lease of that kind from here on, which says what its end would mean.
        """

    @abstractmethod
    async def save(self, claim: Claim, progress: Progress, lease_ms: int = 0) -> bool:
        """Keeps the answer before it leaves, and the claim for at least `lease_ms` from now, so that nobody else sends.

        False if the claim was lost or handed back, or if the answer is stale: then nothing may leave. A stale answer
        ends the turn, in the same step, as `on_stale` says.
        """

    @abstractmethod
    async def absorb(self, claim: Claim, rules: RulesByAgent) -> Claim | None:
        """The claim with all that its turn has by now: what waited behind it too, if the rules say "steer" and it is
        not too much for one turn. Only a turn whose answer is not complete absorbs anything.

        None if the claim was lost or handed back.
        """

    @abstractmethod
    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        """Ends the claim; if messages wait, their deadline counts from the same step on.

        False if the claim was lost, or if the answer that it brings is stale, which ends the turn as `save` does.
        Settling again in the same way returns True and changes nothing.
        """

    @abstractmethod
    async def next_due(self) -> int | None:
        """The earliest deadline there is, of any kind."""

    @abstractmethod
    async def find(self, key: ConversationKey) -> Snapshot | None:
        """A conversation with its unsettled messages; if thousands wait, with the first 1,000 of them."""

    async def check(self) -> None:
        """Raises StoreUnavailable unless messages would be taken now: reading is not enough, since a replica answers
        too."""
        await self.next_due()

    # Where many workers share a store, each wakes for some of the deadlines. A store that knows nothing of that lets
    # each wake for all of them.

    async def join(self, worker: str) -> None:
        """The worker lives. Say so every `JOIN_MS` of rules/watch.py, and it has its share of the deadlines."""
        return None

    async def leave(self, worker: str) -> None:
        """The worker ends."""
        return None

    async def next_look(self) -> int | None:
        """When the worker of this process must look again, if it learns of nothing earlier; None if nothing waits."""
        return await self.next_due()

    def wake_at(self, key: ConversationKey, due_at: int) -> int:
        """When the worker of this process wakes for a deadline that was set here."""
        return due_at

    async def hints(self) -> AsyncIterator[Hint]:
        """What other processes announce, for as long as one listens. A hint may be lost: then the horizon helps."""
        return
        yield

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
