"""What a webhook of the generic channel may say. Pure: bytes become events, or Unreadable says which item and field.

Names may be written in snake_case or camelCase; what has no meaning here is passed over.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta

from turntake.accept.body import ATTACHMENTS, ID_BYTES, ITEMS, LATEST_AT, Link, Name, Part, Text, check_metadata
from turntake.errors import Unreadable
from turntake.instants import to_ms
from turntake.platforms.channel import ChatEvent
from turntake.rules.key import ConversationKey
from turntake.rules.message import Attachment

ACCOUNT_BYTES = 190  # in a conversation's key, the name of our account may come before it
STATES = ("start", "stop")
SECONDS_BELOW = 100_000_000_000  # as milliseconds this would be 1973
_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")

IDS = frozenset({"conversation", "id", "sender", "reply_to", "group_key", "target", "thread", "account"})


class Thing(msgspec.Struct, frozen=True):
    """An attachment as it is written."""

    kind: Annotated[str, Meta(min_length=1, max_length=64)]
    url: Link | None = None
    id: Name | None = None
    mime_type: Part | None = None
    name: Name | None = None
    caption: Text | None = None
    metadata: dict[str, Any] = {}


class Item(msgspec.Struct, frozen=True):
    """One thing said, by its plainest names."""

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


NAMES = {name: name for name in Item.__struct_fields__} | {
    "conversation_id": "conversation",
    "message_id": "id",
    "sent_at": "timestamp",
    "topic": "thread",
}
THING_NAMES = {name: name for name in Thing.__struct_fields__} | {
    "type": "kind",
    "mime": "mime_type",
    "filename": "name",
}


def events_of(body: bytes, request_id: str = "") -> list[ChatEvent]:
    """What the body says, in its order, whole or not at all.

    A message without an id is known by the request's, and by its place if there may be several.
    """
    said = _decoded(body)
    if isinstance(said, dict) and "messages" not in said:
        return [_located(said, "", request_id)]
    items = said["messages"] if isinstance(said, dict) else said
    if not isinstance(items, list):
        raise Unreadable('The body is none of: one object, a list of objects, {"messages": [...]}.')
    if len(items) > ITEMS:
        raise Unreadable(f"The body holds {len(items)} items; send {ITEMS} at most, and the rest in another request.")
    return [
        _located(item, f"Item {place}: ", f"{request_id}.{place}" if request_id else "")
        for place, item in enumerate(items)
    ]


def _decoded(body: bytes) -> Any:
    try:
        said = msgspec.json.decode(body)
        # msgspec refuses all that is not JSON, lone surrogates too, but of a name given twice it takes the last.
        json.loads(body, object_pairs_hook=_once)
    except RecursionError:
        raise Unreadable("The JSON is nested too deeply.") from None
    except UnicodeDecodeError:
        raise Unreadable("The body is not UTF-8.") from None
    except ValueError as error:
        raise Unreadable(f"The body is not JSON: {error}.") from None
    return said


def _once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise Unreadable("An object in the body gives a name twice, and nobody can tell which value is meant.")


def _located(said: Any, where: str, id: str) -> ChatEvent:
    """The event of one item. Whatever is wrong with it is said of `where`."""
    try:
        item = msgspec.convert(_with_ids(_plain(said, NAMES)), Item)
        return _KINDS.get(item.type, _unsupported)(item, id)
    except ValueError as error:
        raise Unreadable(f"{where}{error}") from None


def _plain(said: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """What the object says under these names, as we write them; null says nothing, and no name may come twice."""
    if not isinstance(said, dict):
        raise ValueError("it is no JSON object.")
    plain: dict[str, Any] = {}
    for written, value in said.items():
        name = names.get(_HUMP.sub(lambda hump: f"_{hump[0].lower()}", written))
        if name is None or value is None:
            continue
        if name in plain:
            raise ValueError(f"`{name}` is given under two names; leave one of them out.")
        plain[name] = value
    return plain


def _with_ids(plain: dict[str, Any]) -> dict[str, Any]:
    """The same with ids as texts, though some senders count theirs."""
    ids = {name: str(plain[name]) if type(plain[name]) is int else plain[name] for name in IDS & plain.keys()}
    for name, id in ids.items():
        _check_bytes(name, id)
    return plain | ids


def _message(item: Item, id: str) -> ChatEvent:
    if not item.sender:
        _miss("sender")
    if not (item.text or item.attachments):
        _miss("text", "attachments")
    if not (item.id or id):
        _miss("message_id", "a signed webhook-id")
    return _event(item, "message", id=item.id or id)


def _typing(item: Item, id: str) -> ChatEvent:
    if item.state not in STATES:
        raise ValueError(f"`state` is none of: {', '.join(STATES)}.")
    return _event(item, "typing" if item.state == "start" else "stopped", id=item.id or id)


def _change(item: Item, id: str) -> ChatEvent:
    """Names the changed message as `target`, or else as `message_id`; then that is not the change's own id."""
    target = item.target or item.id
    if not target:
        _miss("target")
    if item.type == "edit" and not (item.text or item.attachments):
        _miss("text", "attachments")
    return _event(item, item.type, id=item.id if item.target else id, target=target)


def _other(item: Item, id: str) -> ChatEvent:
    return _event(item, item.type, id=item.id or id, target=item.target)


def _unsupported(item: Item, id: str) -> ChatEvent:
    """A type of later days is acknowledged: to refuse it would only make the sender try again."""
    return ChatEvent(kind="unsupported", id=item.id or id)


_KINDS: dict[str, Callable[[Item, str], ChatEvent]] = {
    "message": _message,
    "typing": _typing,
    "edit": _change,
    "delete": _change,
    "reaction": _other,
    "read": _other,
}


def _event(item: Item, kind: str, *, id: str, target: str = "") -> ChatEvent:
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
            "timestamp is no instant; write it like 2026-11-15T09:30:00.250Z, or in milliseconds."
        ) from None
    if not 0 <= at <= LATEST_AT:
        raise ValueError("timestamp lies before 1970 or after 9999; send the time the person sent the message.")
    return at


def _in_ms(number: int | float) -> int:
    return round(number * 1000 if number < SECONDS_BELOW else number)


def _attachment(said: dict[str, Any]) -> Attachment:
    thing = msgspec.convert(_plain(said, THING_NAMES), Thing)
    if thing.metadata:
        check_metadata(thing.metadata)
    return Attachment(thing.kind, thing.url, thing.id, thing.mime_type, thing.name, thing.caption, thing.metadata)
