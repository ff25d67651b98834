"""What goes into a store and what comes out of it: the values of its verbs."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import msgspec

from turntake.rules.conversation import Change, Closed, Conversation, SealedTurn, State, Stop
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message, as_said, in_order
from turntake.rules.notices import notice_for
from turntake.rules.rules import Rules, RulesByAgent
from turntake.rules.words import NO_CUE, CueByAgent

IsChosen = Callable[[ConversationKey, str], bool]
"""Whether the turns of a conversation, answered by this agent, are to be forgotten by now."""
IsOurs = Callable[[ConversationKey], bool]
"""Whether a report about a reply may come from where it came: it is signed by one account of one platform."""
AppendStatus = Literal["buffered", "duplicate", "ignored", "rejected"]


class Append(msgspec.Struct, frozen=True):
    """A message for a conversation, with the rules it arrives under, and what it says about the wait.

    `over` is the rule whose limit it is over, if it is: then it is kept as rejected.
    """

    key: ConversationKey
    message: Message
    rules: RulesByAgent
    agent: str = ""
    cue: CueByAgent = NO_CUE
    over: str = ""

    def rules_in(self, conversation: Conversation) -> Rules:
        """The rules it arrives under, now that the conversation's agent is known."""
        return self.rules.of(self.agent or conversation.agent)


class Appended(msgspec.Struct, frozen=True, gc=False):
    """What became of it. `interrupted` is the turn whose running answer this message stopped; `stopped` are the ids of
    all that a stop word ended: that turn, what waited, and a stop word that nobody took yet.

    An amendment that found nothing waiting is ignored, and not kept. A message that is over a limit, or came while its
    conversation was being answered, may be `rejected`: then that is the id under which it is kept, as a turn that
    nobody answers, and `notice` is what the person is to be told, unless they were told a moment ago.
    """

    status: AppendStatus
    state: State
    waiting: int
    due_at: int | None
    reason: str | None
    interrupted: str | None = None
    seq: int = 0
    stopped: tuple[str, ...] = ()
    rejected: str | None = None
    notice: str = ""


class Claim(msgspec.Struct, frozen=True):
    """The exclusive, expiring, fenced right to answer one turn. Without messages, all of them were deleted in time."""

    key: ConversationKey
    epoch: int
    turn: SealedTurn
    messages: tuple[Message, ...]

    @property
    def first_at(self) -> int:
        """When its first message arrived; when it was claimed, if none is left."""
        return min((message.received_at for message in self.messages), default=self.turn.claimed_at)

    @property
    def is_unreadable(self) -> bool:
        """Whether one of its messages cannot be read: then nobody can answer it."""
        return any(message.is_unreadable for message in self.messages if message.metadata)


class Snapshot(msgspec.Struct, frozen=True):
    """One conversation with its messages that are not settled yet, oldest first; of thousands, the first 1,000."""

    key: ConversationKey
    conversation: Conversation
    messages: tuple[Message, ...]


class ClosedPoint(NamedTuple):
    """A point in the list of closed turns: just after the one with this id, which closed at `at`."""

    at: int = 0
    id: str = ""


class Looked(NamedTuple):
    """How many turns were forgotten, and how far one looked for them; `is_end` if there are no more to look at."""

    forgotten: int
    after: ClosedPoint
    is_end: bool


class TurnRecord(msgspec.Struct, frozen=True):
    """A turn, open or closed, with its messages in order."""

    key: ConversationKey
    id: str
    status: str
    epoch: int
    turn: SealedTurn | None
    messages: tuple[Message, ...]
    closed: Closed | None = None

    @property
    def agent(self) -> str:
        return self.turn.agent if self.turn else ""

    @property
    def range(self) -> tuple[int, int]:
        """The numbers of its first and its last message, by which the turns of a conversation are in order."""
        sealed = self.closed or self.turn
        assert sealed is not None, "a turn is open or closed"
        return sealed.head, sealed.tail


class Letter(msgspec.Struct, frozen=True):
    """A dead letter: messages that nobody answered, and why. Its id is the turn's.

    `trace` is where the agent's exception came from, if it was one.
    """

    id: str
    key: ConversationKey
    at: int
    reason: str
    error: str
    attempts: int
    count: int
    messages: tuple[Message, ...] = ()
    trace: str = ""


def appended(conversation: Conversation, status: AppendStatus) -> Appended:
    """The answer to an append that changed nothing, read off the conversation."""
    due = None if conversation.buffer is None else conversation.buffer.due
    due_at, reason = (None, None) if due is None else (due.at, due.reason)
    return Appended(status, conversation.state, conversation.waiting, due_at, reason)


def arrived(arrival: Append, before: Conversation, change: Change) -> Appended:
    """The answer to an append that was stored."""
    conversation, closed = change
    if closed is not None and closed.status == "rejected":
        seq = closed.tail
        notice = notice_for(_notices(arrival.rules_in(before), before, change), arrival.message)
        return Appended(
            "rejected", conversation.state, 0, None, closed.reason, seq=seq, rejected=closed.id, notice=notice
        )
    due = conversation.buffer.due if conversation.buffer is not None else None
    return Appended(
        "buffered",
        conversation.state,
        conversation.waiting,
        None if due is None else due.at,
        None if due is None else due.reason,
        None if closed is None else closed.id,
        before.next_seq,
    )


def _notices(rules: Rules, before: Conversation, change: Change) -> str:
    """What a person is to be told about a message that was rejected, in all languages; nothing if they know already."""
    conversation, closed = change
    if closed is not None and closed.is_aside:
        is_known = before.aside and conversation.aside and before.aside.told_at == conversation.aside.told_at
        return "" if is_known else rules.limit_text
    return rules.busy_text if conversation.turn is not None and conversation.turn.rejections == 1 else ""


def appended_stop(stop: Stop) -> Appended:
    """The answer to an append of a stop word, which is a turn by itself."""
    running = (closed.id for closed in stop.ended if closed.turn is not None and closed.turn.attempt)
    ended, due = tuple(closed.id for closed in stop.ended), stop.turn.due
    return Appended(
        "buffered", stop.conversation.state, 1, due.at, due.reason, next(running, None), stop.turn.head, stopped=ended
    )


def waiting_behind(found: Snapshot, claim: Claim) -> tuple[Message, ...]:
    """The messages that wait while this claim's turn is answered; none if that is no longer the latest claim."""
    turn, buffer = found.conversation.turn, found.conversation.buffer
    is_latest = turn is not None and (found.conversation.epoch, turn.id) == (claim.epoch, claim.turn.id)
    if buffer is None or not is_latest:
        return ()
    return tuple(message for message in found.messages if message.seq >= buffer.head)


def shown(closed: Closed, messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages of a closed range for readers. An edit that was set aside changed nothing, and is shown itself."""
    return in_order(tuple(messages) if closed.is_aside else as_said(messages))


def letter_of(key: ConversationKey, closed: Closed, messages: tuple[Message, ...] | None = None) -> Letter:
    """The dead letter behind a closed range. Without its messages, those that were deleted are still counted."""
    attempts = closed.turn.attempt if closed.turn else 0
    count = closed.count if messages is None else len(messages)
    return Letter(closed.id, key, closed.at, closed.reason, closed.error, attempts, count, messages or (), closed.trace)
