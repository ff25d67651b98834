"""What a body may say. Pure: bytes become arrivals, or a Problem that names what is wrong and where."""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from turntake.errors import Fault, Problem
from turntake.instants import to_ms
from turntake.rules.conversation import Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Attachment, Message
from turntake.service import Arrival

ID_BYTES = 256
TEXT_LENGTH = 65_536
METADATA_BYTES = 16_384
ATTACHMENTS = 32
ITEMS = 100
DEPTH = 64
LATEST_AT = 253_402_300_799_999  # the end of the year 9999

T = TypeVar("T")
S = TypeVar("S")

Id = Annotated[str, Meta(min_length=1, max_length=ID_BYTES, description=f"At most {ID_BYTES} bytes.")]
Part = Annotated[str, Meta(max_length=ID_BYTES)]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH)]
Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Link = Annotated[str, Meta(max_length=4_096)]
Name = Annotated[str, Meta(max_length=1_024)]
Metadata = Annotated[dict[str, Any], Meta(description=f"At most {METADATA_BYTES} bytes, at most {DEPTH} levels deep.")]

_PLACE = re.compile(r"^(?P<detail>.*) - at `(?P<at>\$(?:\[(?P<index>\d+)\])?.*)`$", re.DOTALL)


class AttachmentBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A file, voice note, picture or place, by reference."""

    kind: Annotated[str, Meta(min_length=1, max_length=64)]
    url: Link | None = None
    id: Name | None = None
    mime_type: Part | None = None
    name: Name | None = None
    caption: Text | None = None
    metadata: Metadata = {}


class ConversationBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The parts that name a conversation; those left out have their default."""

    conversation: Id
    channel: Part = ""
    account: Part = ""
    tenant: Part = ""
    agent: Part = ""
    topic: Part = ""

    def key(self) -> ConversationKey:
        return ConversationKey.of(
            self.conversation, tenant=self.tenant, channel=self.channel, account=self.account, topic=self.topic
        )


class MessageBody(ConversationBody, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A message. `id` is the sender's: the same id again changes nothing, so sending again is safe."""

    id: Id
    sender: Part = ""
    text: Text = ""
    sent_at: Instant | None = None
    attachments: Annotated[tuple[AttachmentBody, ...], Meta(max_length=ATTACHMENTS)] = ()
    reply_to: Part | None = None
    metadata: Metadata = {}


class ActivityBody(ConversationBody, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A sign that the person composes, or stopped to."""

    kind: Literal["typing", "recording", "stopped"]
    ttl_ms: Annotated[int, Meta(ge=1, le=3_600_000)] | None = None


MessageBodies = Annotated[list[MessageBody], Meta(min_length=1, max_length=ITEMS)]

_messages = msgspec.json.Decoder(MessageBody | MessageBodies)
_activity = msgspec.json.Decoder(ActivityBody)


def arrivals_in(body: bytes) -> Arrival | list[Arrival]:
    """The message, or the list of messages, that a body holds."""
    found = decode(_messages, body)
    if isinstance(found, MessageBody):
        return checked(arrival_of, found)
    return [checked(arrival_of, item, index) for index, item in enumerate(found)]


def activity_in(body: bytes) -> tuple[ConversationKey, Touch]:
    found = decode(_activity, body)
    kind: Literal["stopped", "composing"] = "stopped" if found.kind == "stopped" else "composing"
    return checked(ActivityBody.key, found), Touch(kind, found.ttl_ms or 0)


def arrival_of(item: MessageBody) -> Arrival:
    """Raises ValueError for what a schema cannot say."""
    for name, value in (("id", item.id), ("sender", item.sender), ("replyTo", item.reply_to or "")):
        _check_bytes(name, value)
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


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """What the body says, or a Problem."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise misfit(error) from None
    except RecursionError:
        raise Problem(400, f"The JSON is nested too deeply; at most {DEPTH} levels are read.") from None
    except UnicodeDecodeError:
        raise Problem(400, "The body is not UTF-8; send JSON in UTF-8.") from None
    except msgspec.DecodeError as error:
        raise Problem(400, f"The body is not JSON: {error}. Send a JSON object in UTF-8.") from None


def checked(make: Callable[[S], T], item: S, index: int | None = None) -> T:
    """What `make` makes of the item; its ValueError becomes a Problem that names the item."""
    try:
        return make(item)
    except ValueError as error:
        fault = Fault(str(error), "$" if index is None else f"$[{index}]", index)
        where = "" if index is None else f"Item {index}: "
        raise Problem(400, f"{where}{error}", [fault]) from None


def misfit(error: msgspec.ValidationError) -> Problem:
    """Well-formed, but not what is asked for here; /openapi.json says what is."""
    match = _PLACE.match(str(error))
    if match is None:
        return Problem(400, f"{error}.", [Fault(str(error), "$")])
    index = None if match["index"] is None else int(match["index"])
    return Problem(400, f"{match['detail']} at {match['at']}.", [Fault(match["detail"], match["at"], index)])


def _check_bytes(name: str, value: str) -> None:
    if len(value) * 4 > ID_BYTES and len(value.encode()) > ID_BYTES:
        raise ValueError(f"`{name}` is longer than {ID_BYTES} bytes; send a shorter one or its hash.")


def check_metadata(metadata: dict[str, Any]) -> None:
    if not _is_within(metadata, DEPTH - 2):
        raise ValueError(f"`metadata` is nested too deeply; at most {DEPTH} levels are kept.")
    try:
        size = len(msgspec.msgpack.encode(metadata))
    except OverflowError:
        raise ValueError("`metadata` holds a number beyond 64 bits; send it as text.") from None
    if size > METADATA_BYTES:
        raise ValueError(f"`metadata` is larger than {METADATA_BYTES} bytes; send a reference instead.")


def _is_within(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner: Sequence[object] = list(value.values()) if isinstance(value, dict) else value
    return levels > 0 and all(_is_within(item, levels - 1) for item in inner)


def _sent_at(written: str) -> int:
    try:
        at = to_ms(written)
    except ValueError:
        raise ValueError("`sentAt` is no instant; write it like 2026-11-15T09:30:00.250Z.") from None
    if not 0 <= at <= LATEST_AT:
        raise ValueError("`sentAt` lies before 1970 or after 9999; send the time the person sent the message.")
    return at


def _attachment(body: AttachmentBody) -> Attachment:
    if body.metadata:
        check_metadata(body.metadata)
    return Attachment(body.kind, body.url, body.id, body.mime_type, body.name, body.caption, body.metadata)
