"""The observer behind `/v1/events`: every step as a typed value, for whoever watches.

A watcher that falls behind misses happenings; it never slows anybody down. Nothing is built while nobody watches.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal

import msgspec

from turntake.observe.observer import Observer, Observers
from turntake.rules.conversation import Answered, Conversation, Dead, ReplyReport, Retry, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Appended, Claim

Kind = Literal[
    "buffered",
    "rejected",
    "activity",
    "due",
    "claimed",
    "absorbed",
    "answered",
    "retrying",
    "failed",
    "interrupted",
    "stopped",
    "discarded",
    "dead-lettered",
    "delivery",
]
Wants = Callable[[ConversationKey], bool]
"""Whether a watcher is told of this conversation."""
# A burst of a thousand steps fits; a watcher that is further behind cannot be helped, and costs memory.
QUEUE_LENGTH = 1_000
# Replies are all that can be long. A thousand usual ones fit, and 200 watchers who stopped reading cost no more than
# some hundred megabytes, whatever agents answer.
QUEUE_CHARACTERS = 500_000


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a conversation. It carries ids, times and counts; replies are its only words."""

    kind: ClassVar[Kind]
    at: int
    key: ConversationKey
    turn_id: str = ""

    @property
    def characters(self) -> int:
        """The length of its words; ids are short."""
        return 0

    @property
    def facts(self) -> dict[str, Any]:
        """What its kind adds to what all have, by name, for whoever writes it down."""
        names = self.__struct_fields__[len(Happening.__struct_fields__) :]
        return {name: value for name in names if (value := getattr(self, name)) is not msgspec.UNSET}


class MessageBuffered(Happening, frozen=True, kw_only=True):
    kind = "buffered"
    message_id: str
    messages: int
    due_at: int | None
    reason: str | None


class ActivitySeen(Happening, frozen=True, kw_only=True):
    kind = "activity"
    order: str
    due_at: int
    reason: str


class TurnDue(Happening, frozen=True, kw_only=True):
    kind = "due"
    due_at: int
    reason: str


class TurnClaimed(Happening, frozen=True, kw_only=True):
    kind = "claimed"
    attempt: int
    messages: int
    buffered_at: int
    claimed_at: int
    lease_until_at: int
    due_at: int
    reason: str


class TurnAnswered(Happening, frozen=True, kw_only=True):
    kind = "answered"
    attempt: int
    replies: tuple[str, ...]

    @property
    def characters(self) -> int:
        return sum(map(len, self.replies))


class TurnFailed(Happening, frozen=True, kw_only=True):
    kind = "failed"
    attempt: int
    retry_after_ms: int


class TurnPutOff(Happening, frozen=True, kw_only=True):
    kind = "retrying"
    attempt: int
    retry_after_ms: int


class TurnInterrupted(Happening, frozen=True, kw_only=True):
    kind = "interrupted"


class TurnStopped(Happening, frozen=True, kw_only=True):
    kind = "stopped"


class MessageRejected(Happening, frozen=True, kw_only=True):
    kind = "rejected"
    message_id: str
    reason: str | None


class MessagesAbsorbed(Happening, frozen=True, kw_only=True):
    kind = "absorbed"
    messages: int


class TurnDiscarded(Happening, frozen=True, kw_only=True):
    kind = "discarded"


class DeadLettered(Happening, frozen=True, kw_only=True):
    """Without `attempt`, the messages were cleared by order and had never been a turn."""

    kind = "dead-lettered"
    attempt: int | msgspec.UnsetType = msgspec.UNSET
    reason: str


class ReplyReported(Happening, frozen=True, kw_only=True):
    """The platform says what became of the reply at place `index`: `delivered`, `read` or `failed`."""

    kind = "delivery"
    index: int
    status: str


class HappeningQueue(asyncio.Queue[Happening]):
    """What one watcher has yet to read, bounded in number and in length. Only what it `wants` is put into it, so that
    what others do takes up none of its room."""

    def __init__(self, wants: Wants) -> None:
        super().__init__(QUEUE_LENGTH)
        self.wants = wants
        self._characters = 0

    def full(self) -> bool:
        return super().full() or self._characters >= QUEUE_CHARACTERS

    # The two steps that asyncio.Queue leaves to its subclasses.

    def _put(self, item: Happening) -> None:
        self._characters += item.characters
        super()._put(item)

    def _get(self) -> Happening:
        item: Happening = super()._get()
        self._characters -= item.characters
        return item


class Stream(Observer):
    """Passes every step on to those who watch. It is among the observers only while somebody does."""

    def __init__(self, observers: Observers) -> None:
        self._observers = observers
        self._watchers: set[HappeningQueue] = set()

    @asynccontextmanager
    async def watch(self, wants: Wants = lambda key: True) -> AsyncIterator[HappeningQueue]:
        """A queue of everything from now on that happens to the conversations it wants."""
        queue = HappeningQueue(wants)
        if not self._watchers:
            self._observers.add(self)
        self._watchers.add(queue)
        try:
            yield queue
        finally:
            self._watchers.discard(queue)
            if not self._watchers:
                self._observers.remove(self)

    def received(self, at: int, key: ConversationKey, message: Message, appended: Appended) -> None:
        self._publish(
            MessageBuffered(
                at=at,
                key=key,
                message_id=message.id,
                messages=appended.waiting,
                due_at=appended.due_at,
                reason=appended.reason,
            )
        )

    def rejected(self, at: int, key: ConversationKey, message: Message, appended: Appended) -> None:
        turn_id, reason = appended.rejected or "", appended.reason
        self._publish(MessageRejected(at=at, key=key, turn_id=turn_id, message_id=message.id, reason=reason))

    def touched(self, at: int, key: ConversationKey, touch: Touch, conversation: Conversation) -> None:
        if touch.kind == "clear":
            self._publish(DeadLettered(at=at, key=key, reason="cleared by order"))
        elif conversation.buffer is not None:
            due = conversation.buffer.due
            self._publish(ActivitySeen(at=at, key=key, order=touch.kind, due_at=due.at, reason=due.reason))

    def interrupted(self, at: int, key: ConversationKey, turn_id: str) -> None:
        self._publish(TurnInterrupted(at=at, key=key, turn_id=turn_id))

    def stopped(self, at: int, key: ConversationKey, turn_id: str) -> None:
        self._publish(TurnStopped(at=at, key=key, turn_id=turn_id))

    def absorbed(self, at: int, claim: Claim, messages: tuple[Message, ...]) -> None:
        self._publish(MessagesAbsorbed(at=at, key=claim.key, turn_id=claim.turn.id, messages=len(messages)))

    def discarded(self, at: int, key: ConversationKey, turn_id: str) -> None:
        self._publish(TurnDiscarded(at=at, key=key, turn_id=turn_id))

    def due(self, at: int, claim: Claim) -> None:
        due = claim.turn.due
        self._publish(TurnDue(at=at, key=claim.key, turn_id=claim.turn.id, due_at=due.at, reason=due.reason))

    def claimed(self, at: int, claim: Claim) -> None:
        turn = claim.turn
        self._publish(
            TurnClaimed(
                at=at,
                key=claim.key,
                turn_id=turn.id,
                attempt=turn.attempt,
                messages=len(claim.messages),
                buffered_at=claim.first_at,
                claimed_at=turn.claimed_at if turn.attempt == 1 else at,
                lease_until_at=turn.due_at,
                due_at=turn.due.at,
                reason=turn.due.reason,
            )
        )

    def answered(self, at: int, claim: Claim, answer: Answered) -> None:
        self._publish(
            TurnAnswered(
                at=at, key=claim.key, turn_id=claim.turn.id, attempt=claim.turn.attempt, replies=answer.replies
            )
        )

    def failed(self, at: int, claim: Claim, retry: Retry, error: Exception | None) -> None:
        self._publish(
            TurnFailed(
                at=at,
                key=claim.key,
                turn_id=claim.turn.id,
                attempt=claim.turn.attempt,
                retry_after_ms=retry.after_ms,
            )
        )

    def put_off(self, at: int, claim: Claim, retry: Retry, error: Exception | None) -> None:
        self._publish(
            TurnPutOff(
                at=at,
                key=claim.key,
                turn_id=claim.turn.id,
                attempt=claim.turn.attempt,
                retry_after_ms=retry.after_ms,
            )
        )

    def dead(self, at: int, claim: Claim, dead: Dead, error: Exception | None) -> None:
        self._publish(
            DeadLettered(at=at, key=claim.key, turn_id=claim.turn.id, attempt=claim.turn.attempt, reason=dead.reason)
        )

    def reported(self, at: int, key: ConversationKey, turn_id: str, report: ReplyReport) -> None:
        self._publish(ReplyReported(at=at, key=key, turn_id=turn_id, index=report.index, status=report.status))

    def _publish(self, happening: Happening) -> None:
        for watcher in self._watchers:
            if watcher.wants(happening.key) and not watcher.full():
                watcher.put_nowait(happening)
