"""`POST /v1/messages`: plain ASGI without a framework's request object, since every message passes here."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.types import Receive, Scope, Send

from turntake.accept.body import (
    ConversationBody,
    Id,
    Instant,
    Metadata,
    check_bytes,
    checked,
    decode,
    read_body,
    send_accepted,
)
from turntake.accept.caller import caller_of, permitted
from turntake.accept.homes import Homes
from turntake.accept.repeated_names import FieldNames
from turntake.arrival import Arrival, Receipt
from turntake.instants import rfc3339, to_ms
from turntake.rules.message import Attachment, Message
from turntake.rules.message_limits import ATTACHMENTS, ITEMS, LATEST_AT, Kind, Link, Name, Part, Text, check_metadata
from turntake.service import TurnTake


class AttachmentBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A file, voice note, picture or place, by reference."""

    kind: Kind
    url: Link | None = None
    id: Name | None = None
    mime_type: Part | None = None
    name: Name | None = None
    caption: Text | None = None
    metadata: Metadata = {}


class MessageBody(ConversationBody, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A message. `id` is the sender's: the same id again changes nothing, so sending again is safe."""

    id: Id
    sender: Part = ""
    text: Text = ""
    sent_at: Instant | None = None
    attachments: Annotated[tuple[AttachmentBody, ...], Meta(max_length=ATTACHMENTS)] = ()
    reply_to: Part | None = None
    metadata: Metadata = msgspec.field(default_factory=dict)


class ReceiptView(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a message: `messages` wait together until `dueAt`, because of `reason`."""

    status: str
    conversation_key: str
    messages: int
    due_at: Instant | None
    reason: str | None


MessageBodies = Annotated[list[MessageBody], Meta(min_length=1, max_length=ITEMS)]

_decoder = msgspec.json.Decoder(MessageBody | MessageBodies)
_fields = FieldNames(MessageBody)


class Messages:
    """Answers once everything is stored.

    The messages that a list holds for one conversation are stored together or not at all. If the answer is an error,
    those of other conversations may be stored already: sending the list again stores the rest and repeats nothing.
    """

    def __init__(self, turns: TurnTake, homes: Homes) -> None:
        self._turns = turns
        self._homes = homes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrivals, caller = arrivals_in(await read_body(receive)), caller_of(scope)
        if isinstance(arrivals, list):
            receipts = await self._turns.accept_sound([permitted(caller, arrival, self._homes) for arrival in arrivals])
            await send_accepted(send, list(map(receipt_view, receipts)))
        else:
            (receipt,) = await self._turns.accept_sound([permitted(caller, arrivals, self._homes)])
            await send_accepted(send, receipt_view(receipt))


def arrivals_in(body: bytes) -> Arrival | list[Arrival]:
    """The message, or the list of messages, that a body holds."""
    payload = decode(_decoder, body)
    _fields.refuse_repeated(body)
    if isinstance(payload, MessageBody):
        return checked(arrival_of, payload)
    return [checked(arrival_of, item, index) for index, item in enumerate(payload)]


def arrival_of(item: MessageBody) -> Arrival:
    """Raises ValueError for what a schema cannot say."""
    check_bytes(id=item.id, sender=item.sender, replyTo=item.reply_to or "")
    if item.metadata:
        check_metadata(item.metadata)
    message = Message(
        id=item.id,
        text=item.text,
        sender=item.sender,
        sent_at=None if item.sent_at is None else _sent_at(item.sent_at),
        attachments=tuple(map(_attachment, item.attachments)) if item.attachments else (),
        reply_to=item.reply_to,
        metadata=item.metadata,
    )
    return Arrival(item.key(), message, item.agent)


def receipt_view(receipt: Receipt) -> ReceiptView:
    due_at = None if receipt.due_at is None else rfc3339(receipt.due_at)
    return ReceiptView(receipt.status, str(receipt.key), receipt.messages, due_at, receipt.reason)


def _sent_at(text: str) -> int:
    try:
        at = to_ms(text)
    except ValueError:
        raise ValueError("`sentAt` is not an instant; write it like 2026-11-15T09:30:00.250Z.") from None
    if not 0 <= at <= LATEST_AT:
        raise ValueError("`sentAt` lies before 1970 or after 9999; send the time the person sent the message.")
    return at


def _attachment(body: AttachmentBody) -> Attachment:
    if body.metadata:
        check_metadata(body.metadata)
    return Attachment(body.kind, body.url, body.id, body.mime_type, body.name, body.caption, body.metadata)
