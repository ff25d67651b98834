"""How conversations, turns and dead letters look from outside. Pure; the structs are also the API's schema."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import asdict

from turntake.deliver.cloudevents import (
    EventDecision,
    EventMessage,
    EventMetadata,
    Instant,
    TurnHeader,
    event_decision,
    event_message,
    header_of,
    sent_at,
)
from turntake.http.why import why
from turntake.instants import rfc3339
from turntake.rules.conversation import (
    Closed,
    Conversation,
    ReplyReport,
    ReportedStatus,
    SealedTurn,
    Status,
    TurnStatus,
)
from turntake.rules.deadline import Decision
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message, in_order, joined
from turntake.rules.records import Letter, Snapshot, TurnRecord


class OpenTurnView(msgspec.Struct, frozen=True, rename="camel"):
    """The turn being answered: held by somebody until `leaseUntilAt`, or to be tried again at `retryAt`."""

    turn_id: str
    attempt: int
    reason: str
    messages: list[EventMessage]
    replies: tuple[str, ...]
    error: str
    claimed_at: Instant
    lease_until_at: Instant | None
    retry_at: Instant | None


class DeliveryView(msgspec.Struct, frozen=True, rename="camel"):
    """What the platform said became of the reply at place `index`, counted from 0."""

    index: int
    status: ReportedStatus
    at: Instant
    error: str


class PastTurnView(msgspec.Struct, frozen=True, rename="camel"):
    """One line of a conversation's history; `/v1/turns/{turnId}` has the rest."""

    turn_id: str
    status: str
    attempt: int
    message_count: int
    reason: str | None
    replies: tuple[str, ...]
    error: str
    claimed_at: Instant | None
    settled_at: Instant | None


class ConversationView(msgspec.Struct, frozen=True, rename="camel"):
    """Where a conversation stands: `messageCount` messages wait until `dueAt`, because of `reason`.

    It has its `status` since `statusAt`. If nothing waits, that is `idle`; or `failed` or `timed_out`, if its latest
    turn became a dead letter. `lastTurnAt` is when that turn ended, however it did. Times that nobody noted are null.
    """

    conversation_key: str
    conversation_id: str
    tenant: str
    channel: str
    account: str
    topic: str
    agent: str
    status: Status
    message_count: int
    due_at: Instant | None
    reason: str | None
    turn_id: str | None
    why: str
    status_at: Instant | None
    began_at: Instant | None
    last_message_at: Instant | None
    last_turn_at: Instant | None


class ConversationDetail(ConversationView, frozen=True, rename="camel"):
    """The same with what waits, what is being answered, why it waits, and the latest turns.

    If more than 1,000 messages wait, `messages` are the first 1,000; `messageCount` counts all.
    """

    messages: list[EventMessage]
    turn: OpenTurnView | None
    decisions: list[EventDecision]
    turns: list[PastTurnView]


class TurnView(TurnHeader, frozen=True, rename="camel"):
    """A turn from its first message to its end; the fields it shares with `messages.batch.ready` mean the same.

    `waitedMs` is how long its first message waited, `latenessMs` how long after being due it was claimed.
    `sentReplies` is how many of its replies left for the person, where they leave at all.
    `unknownReplies` are the indexes, from 0, of replies that a platform may have taken or not: it never said.
    `deliveries` are the reports of platforms that tell what became of a reply after they took it.
    It was handed over `attempt` times. Of these, `failures` are those that failed since its answer was complete, at
    `answeredAt`, or in all before that. Messages interrupted its answer `interrupts` times.
    """

    status: TurnStatus
    attempt: int
    reason: str
    message_count: int
    text: str
    messages: list[EventMessage]
    decisions: list[EventDecision]
    replies: tuple[str, ...]
    sent_replies: int
    unknown_replies: tuple[int, ...]
    error: str
    metadata: EventMetadata
    buffered_at: Instant | None
    first_message_at: Instant | None
    last_message_at: Instant | None
    due_at: Instant | None
    claimed_at: Instant | None
    settled_at: Instant | None
    lease_until_at: Instant | None
    retry_at: Instant | None
    lateness_ms: int | None
    waited_ms: int | None
    deliveries: list[DeliveryView]
    answered_at: Instant | None
    failures: int
    interrupts: int


class ArrivalsView(msgspec.Struct, frozen=True, rename="camel"):
    """What came since a turn was handed over and waits behind it."""

    turn_id: str
    status: TurnStatus
    messages: list[EventMessage]


class AbsorbedView(msgspec.Struct, frozen=True, rename="camel"):
    """What a turn absorbed just now, and the turn with all that it has."""

    absorbed: list[EventMessage]
    turn: TurnView


class LetterView(msgspec.Struct, frozen=True, rename="camel"):
    """A dead letter. Its id is its turn's."""

    id: str
    conversation_key: str
    at: Instant
    reason: str
    error: str
    attempts: int
    message_count: int


class LetterDetail(LetterView, frozen=True, rename="camel"):
    """The same with its messages, and where the agent's exception came from, if it was one."""

    messages: list[EventMessage]
    trace: str


def conversation_view(key: ConversationKey, conversation: Conversation, now: int) -> ConversationView:
    buffer, turn = conversation.buffer, conversation.turn
    return ConversationView(
        conversation_key=str(key),
        conversation_id=key.conversation,
        tenant=key.tenant,
        channel=key.channel,
        account=key.account,
        topic=key.topic,
        agent=conversation.agent,
        status=conversation.status,
        message_count=conversation.waiting,
        due_at=instant(buffer.due.at if buffer else None),
        reason=buffer.due.reason if buffer else None,
        turn_id=turn.id if turn else None,
        why=why(conversation, now),
        status_at=instant(conversation.status_at),
        began_at=instant(conversation.began_at or None),
        last_message_at=instant(conversation.last_message_at),
        last_turn_at=instant(conversation.last.ended_at if conversation.last else None),
    )


def conversation_detail(snapshot: Snapshot, turns: Iterable[TurnRecord], now: int) -> ConversationDetail:
    """The latest of `turns` that are over, with everything that is open."""
    buffer, turn = snapshot.conversation.buffer, snapshot.conversation.turn
    waiting = [m for m in snapshot.messages if buffer is not None and m.seq >= buffer.head]
    return ConversationDetail(
        **asdict(conversation_view(snapshot.key, snapshot.conversation, now)),
        messages=message_views(waiting, snapshot.key),
        turn=None if turn is None else _open_turn(snapshot, turn),
        decisions=decision_views(buffer.decisions if buffer else turn.decisions if turn else ()),
        turns=[_past_turn(record) for record in turns if record.closed is not None],
    )


def turn_view(record: TurnRecord) -> TurnView:
    key, turn, closed = record.key, record.turn, record.closed
    arrived_at = min((message.received_at for message in record.messages), default=None)
    sent = [sent_at(message) for message in record.messages]
    return TurnView(
        *header_of(record.id, key, record.agent),
        status=record.status,  # type: ignore[arg-type]  # a str in stores: a later release may write others
        attempt=turn.attempt if turn else 0,
        reason=turn.due.reason if turn else closed.reason if closed else "",
        message_count=len(record.messages),
        text=joined(record.messages),
        messages=message_views(record.messages, key),
        decisions=decision_views(turn.decisions if turn else ()),
        replies=turn.progress.replies if turn else (),
        sent_replies=turn.progress.sent if turn else 0,
        unknown_replies=turn.progress.unknown if turn else (),
        error=_error(turn, closed),
        metadata=EventMetadata(key.channel),
        buffered_at=instant(arrived_at),
        first_message_at=instant(min(sent, default=None)),
        last_message_at=instant(max(sent, default=None)),
        due_at=instant(turn.due.at if turn else None),
        claimed_at=instant(turn.claimed_at if turn else None),
        settled_at=instant(closed.at if closed else None),
        lease_until_at=instant(turn.due_at if turn and turn.is_leased and closed is None else None),
        retry_at=instant(turn.due_at if turn and not turn.is_leased and closed is None else None),
        lateness_ms=turn.claimed_at - turn.due.at if turn else None,
        waited_ms=turn.claimed_at - arrived_at if turn and arrived_at is not None else None,
        deliveries=[delivery_view(report) for report in turn.reports] if turn else [],
        answered_at=instant(turn.answered_at or None if turn else None),
        failures=turn.failures if turn else 0,
        interrupts=turn.interrupts if turn else 0,
    )


def delivery_view(report: ReplyReport) -> DeliveryView:
    return DeliveryView(report.index, report.status, rfc3339(report.at), report.error)


def letter_view(letter: Letter) -> LetterView:
    return LetterView(
        id=letter.id,
        conversation_key=str(letter.key),
        at=rfc3339(letter.at),
        reason=letter.reason,
        error=letter.error,
        attempts=letter.attempts,
        message_count=letter.count,
    )


def letter_detail(letter: Letter) -> LetterDetail:
    return LetterDetail(
        **asdict(letter_view(letter)), messages=message_views(letter.messages, letter.key), trace=letter.trace
    )


def instant(at: int | None) -> str | None:
    return None if at is None else rfc3339(at)


def message_views(messages: Iterable[Message], key: ConversationKey) -> list[EventMessage]:
    return [event_message(message, key.channel) for message in messages]


def decision_views(decisions: Iterable[Decision]) -> list[EventDecision]:
    return [event_decision(decision) for decision in decisions]


def _open_turn(snapshot: Snapshot, turn: SealedTurn) -> OpenTurnView:
    sealed = in_order(tuple(m for m in snapshot.messages if turn.head <= m.seq <= turn.tail))
    return OpenTurnView(
        turn_id=turn.id,
        attempt=turn.attempt,
        reason=turn.due.reason,
        messages=message_views(sealed, snapshot.key),
        replies=turn.progress.replies,
        error=turn.error,
        claimed_at=rfc3339(turn.claimed_at),
        lease_until_at=instant(turn.due_at if turn.is_leased else None),
        retry_at=instant(None if turn.is_leased else turn.due_at),
    )


def _past_turn(record: TurnRecord) -> PastTurnView:
    turn, closed = record.turn, record.closed
    return PastTurnView(
        turn_id=record.id,
        status=record.status,
        attempt=turn.attempt if turn else 0,
        message_count=len(record.messages),
        reason=turn.due.reason if turn else closed.reason if closed else None,
        replies=turn.progress.replies if turn else (),
        error=_error(turn, closed),
        claimed_at=instant(turn.claimed_at if turn else None),
        settled_at=instant(closed.at if closed else None),
    )


def _error(turn: SealedTurn | None, closed: Closed | None) -> str:
    return (closed.error if closed else "") or (turn.error if turn else "")
