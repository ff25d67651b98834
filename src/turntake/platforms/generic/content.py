"""What a webhook of the generic channel may say. Pure: bytes become events, or Unreadable says which item and field.

Unlike the platforms' own webhooks, which are read with `loose_json.py`, these are written by people who can correct
them, so what is wrong is refused. Names may be written in snake_case or camelCase; unknown names are passed over.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta

from turntake.errors import Unreadable
from turntake.instants import to_ms
from turntake.platforms.channel import ChatEvent
from turntake.rules.key import ConversationKey
from turntake.rules.message import Attachment
from turntake.rules.message_limits import (
    ATTACHMENTS,
    ID_BYTES,
    ITEMS,
    LATEST_AT,
    Kind,
    Link,
    Name,
    Part,
    Text,
    check_metadata,
)

ACCOUNT_BYTES = 190  # leaves room in the key for our own account's name of up to 64 characters and a slash
STATES = ("start", "stop")
SECONDS_BELOW = 100_000_000_000  # as milliseconds this would be 1973, as seconds the year 5138
_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")

IDS = frozenset({"conversation", "id", "sender", "reply_to", "group_key", "target", "thread", "account"})


class AttachmentItem(msgspec.Struct, frozen=True):
    """An attachment as the sender writes it."""

    kind: Kind
    url: Link | None = None
    id: Name | None = None
    mime_type: Part | None = None
    name: Name | None = None
    caption: Text | None = None
    metadata: dict[str, Any] = {}


class GenericItem(msgspec.Struct, frozen=True):
    """One message, change or sign of typing, under one name for each field."""

    type: str = "message"
    conversation: Part = ""
    id: Part = ""
    sender: Part = ""
    text: Text = ""
    attachments: Annotated[list[dict[str, Any]], Meta(max_length=ATTACHMENTS)] = []
    timestamp: str | int | float | None = None
    reply_to: Part | None = None
    group_key: Part = ""
    target: Part = ""
    state: str = "start"
    ttl_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 0
    thread: Part = ""
    is_group: bool = False
    account: Part = ""
    metadata: dict[str, Any] = {}


NAMES = {name: name for name in GenericItem.__struct_fields__} | {
    "conversation_id": "conversation",
    "message_id": "id",
    "sent_at": "timestamp",
    "topic": "thread",
}
ATTACHMENT_NAMES = {name: name for name in AttachmentItem.__struct_fields__} | {
    "type": "kind",
    "mime": "mime_type",
    "filename": "name",
}


def events_of(body: bytes, request_id: str = "") -> list[ChatEvent]:
    """What the body says, in its order, whole or not at all.

    A message without an id is known by the request's, and by its index if there may be several.
    """
    payload = _decoded(body)
    if isinstance(payload, dict) and "messages" not in payload:
        return [_event_of(payload, "", request_id)]
    items = payload["messages"] if isinstance(payload, dict) else payload
    if not isinstance(items, list):
        raise Unreadable('The body is neither an object, nor a list of objects, nor {"messages": [...]}.')
    if len(items) > ITEMS:
        raise Unreadable(f"The body holds {len(items)} items; send {ITEMS} at most, and the rest in another request.")
    return [
        _event_of(item, f"Item {index}: ", f"{request_id}.{index}" if request_id else "")
        for index, item in enumerate(items)
    ]


def _decoded(body: bytes) -> Any:
    try:
        payload = msgspec.json.decode(body)
        # msgspec refuses all that is not JSON, lone surrogates too, but of a name that is there twice it takes the
        # last without a word; only the standard library shows both.
        json.loads(body, object_pairs_hook=_refuse_repeated)
    except RecursionError:
        raise Unreadable("The JSON is nested too deeply.") from None
    except UnicodeDecodeError:
        raise Unreadable("The body is not UTF-8.") from None
    except ValueError as error:
        raise Unreadable(f"The body is not JSON: {error}.") from None
    return payload


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise Unreadable("An object in the body has a name twice, and nobody can tell which value is meant.")


def _event_of(payload: Any, where: str, id: str) -> ChatEvent:
    """The event of one item. An error's text begins with `where`."""
    try:
        item = msgspec.convert(_with_ids(_renamed(payload, NAMES)), GenericItem)
        return _KINDS.get(item.type, _unsupported)(item, id)
    except ValueError as error:
        raise Unreadable(f"{where}{error}") from None


def _renamed(payload: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """The object with these names as we write them; null counts as missing, and no name may come twice."""
    if not isinstance(payload, dict):
        raise ValueError("it is not a JSON object.")
    renamed: dict[str, Any] = {}
    for theirs, value in payload.items():
        name = names.get(_HUMP.sub(lambda hump: f"_{hump[0].lower()}", theirs))
        if name is None or value is None:
            continue
        if name in renamed:
            raise ValueError(f"`{name}` is given under two names; leave one of them out.")
        renamed[name] = value
    return renamed


def _with_ids(fields: dict[str, Any]) -> dict[str, Any]:
    """The same with ids as texts, though some senders count theirs."""
    ids = {name: str(fields[name]) if type(fields[name]) is int else fields[name] for name in IDS & fields.keys()}
    for name, id in ids.items():
        _check_bytes(name, id)
    return fields | ids


def _message(item: GenericItem, id: str) -> ChatEvent:
    if not item.sender:
        _miss("sender")
    if not (item.text or item.attachments):
        _miss("text", "attachments")
    if not (item.id or id):
        _miss("message_id", "a signed webhook-id")
    return _event(item, "message", id=item.id or id)


def _typing(item: GenericItem, id: str) -> ChatEvent:
    if item.state not in STATES:
        raise ValueError(f"`state` is none of: {', '.join(STATES)}.")
    return _event(item, "typing" if item.state == "start" else "stopped", id=item.id or id)


def _change(item: GenericItem, id: str) -> ChatEvent:
    """Names the changed message as `target`, or else as `message_id`; then that is not the change's own id."""
    target = item.target or item.id
    if not target:
        _miss("target")
    if item.type == "edit" and not (item.text or item.attachments):
        _miss("text", "attachments")
    return _event(item, item.type, id=item.id if item.target else id, target=target)


def _other(item: GenericItem, id: str) -> ChatEvent:
    return _event(item, item.type, id=item.id or id, target=item.target)


def _unsupported(item: GenericItem, id: str) -> ChatEvent:
    """A type of later days is acknowledged: to refuse it would only make the sender try again."""
    return ChatEvent(kind="unsupported", id=item.id or id)


_KINDS: dict[str, Callable[[GenericItem, str], ChatEvent]] = {
    "message": _message,
    "typing": _typing,
    "edit": _change,
    "delete": _change,
    "reaction": _other,
    "read": _other,
}


def _event(item: GenericItem, kind: str, *, id: str, target: str = "") -> ChatEvent:
    if not item.conversation:
        _miss("conversation_id")
    _check_bytes("webhook-id", id)
    ConversationKey.of(item.conversation, account=item.account, topic=item.thread)
    if item.metadata:
        check_metadata(item.metadata)
    return ChatEvent(
        kind=kind,
        account=item.account,
        conversation=item.conversation,
        sender=item.sender,
        id=id,
        text=item.text,
        attachments=tuple(map(_attachment, item.attachments)),
        sent_at=None if item.timestamp is None else _sent_at(item.timestamp),
        reply_to=item.reply_to or None,
        thread=item.thread,
        is_group=item.is_group,
        target=target,
        ttl_ms=item.ttl_ms,
        metadata={**item.metadata, "groupKey": item.group_key} if item.group_key else item.metadata,
    )


def _miss(*names: str) -> NoReturn:
    raise ValueError(f"{' or '.join(names)} is missing.")


def _check_bytes(name: str, id: Any) -> None:
    most = ACCOUNT_BYTES if name == "account" else ID_BYTES
    if isinstance(id, str) and len(id.encode()) > most:
        raise ValueError(f"`{name}` is longer than {most} bytes; send a shorter one or its hash.")


def _sent_at(timestamp: str | int | float) -> int:
    try:
        at = to_ms(timestamp) if isinstance(timestamp, str) else _in_ms(timestamp)
    except (ValueError, OverflowError):
        raise ValueError(
            "timestamp is not an instant; write it like 2026-11-15T09:30:00.250Z, or in milliseconds."
        ) from None
    if not 0 <= at <= LATEST_AT:
        raise ValueError("timestamp lies before 1970 or after 9999; send the time the person sent the message.")
    return at


def _in_ms(number: int | float) -> int:
    return round(number * 1000 if number < SECONDS_BELOW else number)


def _attachment(payload: dict[str, Any]) -> Attachment:
    item = msgspec.convert(_renamed(payload, ATTACHMENT_NAMES), AttachmentItem)
    if item.metadata:
        check_metadata(item.metadata)
    return Attachment(item.kind, item.url, item.id, item.mime_type, item.name, item.caption, item.metadata)
