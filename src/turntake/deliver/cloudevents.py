"""The events as they leave: CloudEvents, structured JSON. A pure translation; it knows nothing of HTTP."""

from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec

from turntake.deliver.turn import Turn
from turntake.instants import rfc3339
from turntake.rules.deadline import Decision
from turntake.rules.key import ConversationKey
from turntake.rules.message import Attachment, Message
from turntake.rules.records import Claim

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
SCHEMA_ID = "urn:turntake:messages.batch.ready:1"

Instant = Annotated[
    str, msgspec.Meta(description="RFC 3339, UTC, with milliseconds.", extra_json_schema={"format": "date-time"})
]


class EventMessage(msgspec.Struct, frozen=True, rename="camel"):
    """One message. `timestamp` is the platform's time, or that of its arrival where the platform gave none."""

    id: str
    seq: int
    sender: str
    text: str
    timestamp: Instant
    received_at: Instant
    attachments: tuple[Attachment, ...]
    reply_to: str | None
    platform: str
    metadata: dict[str, Any]


class EventDecision(msgspec.Struct, frozen=True, rename="camel"):
    """One step of the wait: at `at`, the deadline became `dueAt` because of `reason`."""

    at: Instant
    due_at: Instant
    reason: str


class EventMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """Facts about the turn as a whole. More may be added."""

    platform: str


class TurnHeader(msgspec.Struct, frozen=True, rename="camel"):
    """Which turn of which conversation: how its event and its view in the API begin."""

    turn_id: str
    conversation_id: str
    conversation_key: str
    tenant: str
    channel: str
    account: str
    agent: str
    topic: str


class EventChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as OpenAI's chat completions take it. `name` is there if several people wrote."""

    role: Literal["user"]
    content: str
    name: str | msgspec.UnsetType = msgspec.UNSET


class Batch(TurnHeader, frozen=True, rename="camel"):
    """A turn: what one person said, handed over together. Only `attempt` differs when it is handed over again.

    `text` is its messages joined by newlines, or as the rule `text_format` says; `chatMessages` is there if that rule
    is `chat`.
    """

    attempt: int
    reason: str
    message_count: int
    text: str
    messages: tuple[EventMessage, ...]
    buffered_at: Instant
    first_message_at: Instant
    last_message_at: Instant
    metadata: EventMetadata
    decisions: tuple[EventDecision, ...]
    completion_token: Annotated[
        str,
        msgspec.Meta(
            description="In place of an API key it completes, fails or extends this turn through the API, and no other."
        ),
    ]
    chat_messages: tuple[EventChatMessage, ...] | msgspec.UnsetType = msgspec.UNSET


class BatchReady(msgspec.Struct, frozen=True, kw_only=True):
    """The CloudEvent `messages.batch.ready`. `time` is when the turn was first claimed."""

    specversion: Literal["1.0"] = "1.0"
    id: str
    source: str
    type: Literal["messages.batch.ready"] = "messages.batch.ready"
    time: Instant
    datacontenttype: Literal["application/json"] = "application/json"
    subject: str
    data: Batch


class Interrupted(TurnHeader, frozen=True, rename="camel"):
    """A turn that is no longer to be answered; its messages come again in another turn, with those that came since."""

    attempt: int


class BatchInterrupted(msgspec.Struct, frozen=True, kw_only=True):
    """The CloudEvent `messages.batch.interrupted`."""

    specversion: Literal["1.0"] = "1.0"
    id: str
    source: str
    type: Literal["messages.batch.interrupted"] = "messages.batch.interrupted"
    datacontenttype: Literal["application/json"] = "application/json"
    subject: str
    data: Interrupted


class Reply(msgspec.Struct, frozen=True, rename="camel"):
    """The `index`-th reply to a turn, counted from 0."""

    turn_id: str
    conversation_id: str
    conversation_key: str
    tenant: str
    channel: str
    account: str
    topic: str
    index: int
    text: str


class ReplyReady(msgspec.Struct, frozen=True, kw_only=True):
    """The CloudEvent `messages.reply.ready`. It has no `time`, so that it is the same on every try."""

    specversion: Literal["1.0"] = "1.0"
    id: str
    source: str
    type: Literal["messages.reply.ready"] = "messages.reply.ready"
    datacontenttype: Literal["application/json"] = "application/json"
    subject: str
    data: Reply


def batch_ready(turn: Turn) -> BatchReady:
    """The event that hands `turn` over."""
    return BatchReady(
        id=turn.id,
        source=_source(turn.conversation),
        time=rfc3339(turn.claim.turn.claimed_at),
        subject=str(turn.conversation),
        data=_batch(turn),
    )


def batch_interrupted(claim: Claim) -> BatchInterrupted:
    """The event that says that nobody waits for the answer to this claim's turn any more."""
    turn, key = claim.turn, claim.key
    data = Interrupted(*header_of(turn.id, key, turn.agent), attempt=turn.attempt)
    return BatchInterrupted(id=f"{turn.id}.{claim.epoch}.interrupted", source=_source(key), subject=str(key), data=data)


def reply_ready(key: ConversationKey, turn_id: str, index: int, text: str) -> ReplyReady:
    """The event that carries one reply."""
    data = Reply(
        turn_id, key.conversation, str(key), key.tenant, key.channel, key.account, key.topic, index=index, text=text
    )
    return ReplyReady(id=f"{turn_id}.{index}", source=_source(key), subject=str(key), data=data)


def header_of(turn_id: str, key: ConversationKey, agent: str) -> tuple[str, str, str, str, str, str, str, str]:
    """The fields of a TurnHeader, in their order."""
    return turn_id, key.conversation, str(key), key.tenant, key.channel, key.account, agent, key.topic


def event_message(message: Message, platform: str) -> EventMessage:
    """A message as events and the API show it."""
    return EventMessage(
        id=message.id,
        seq=message.seq,
        sender=message.sender,
        text=message.text,
        timestamp=rfc3339(sent_at(message)),
        received_at=rfc3339(message.received_at),
        attachments=message.attachments,
        reply_to=message.reply_to,
        platform=platform,
        metadata=message.metadata,
    )


def event_decision(decision: Decision) -> EventDecision:
    """A decision as events and the API show it."""
    return EventDecision(rfc3339(decision.at), rfc3339(decision.due_at), decision.reason)


def sent_at(message: Message) -> int:
    """The platform's time, or that of the message's arrival where the platform gave none."""
    return message.received_at if message.sent_at is None else message.sent_at


def schema() -> dict[str, Any]:
    """The JSON Schema of `messages.batch.ready`, as published in docs/reference/event.schema.json."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID}
    return head | msgspec.json.schema(BatchReady)


def _batch(turn: Turn) -> Batch:
    key, platform = turn.conversation, turn.conversation.channel
    sent = [sent_at(message) for message in turn.messages]
    return Batch(
        *header_of(turn.id, key, turn.agent),
        attempt=turn.attempt,
        reason=turn.reason,
        message_count=len(turn.messages),
        text=turn.text,
        messages=tuple(event_message(message, platform) for message in turn.messages),
        buffered_at=rfc3339(turn.claim.first_at),
        first_message_at=rfc3339(min(sent)),
        last_message_at=rfc3339(max(sent)),
        metadata=EventMetadata(platform),
        decisions=tuple(event_decision(decision) for decision in turn.decisions),
        completion_token=turn.completion_token,
        chat_messages=_chat_messages(turn),
    )


def _chat_messages(turn: Turn) -> tuple[EventChatMessage, ...] | msgspec.UnsetType:
    if turn.text_format != "chat":
        return msgspec.UNSET
    return tuple(EventChatMessage(**message) for message in turn.chat_messages())


def _source(key: ConversationKey) -> str:
    return f"/turntake/{quote(key.tenant, safe='')}/{quote(key.channel, safe='')}"
