"""A message that somebody built in Python: every part of its type, or a sentence that says what to write instead. Pure.

Structs are checked when they are decoded, not when they are built. A message with a number for an id would be stored,
and nobody could read it again. So each passes here before it reaches a store: what is plainly meant is converted (a
number or a UUID for an id, None for no text, a datetime), and the rest is refused.

How this works: `sound` looks at the types first, which is all that happens to most messages. Only one that does not
pass is taken apart. What was decoded from JSON into types, as the HTTP API does, need not come here at all.
"""

from collections.abc import Callable
from datetime import datetime
from itertools import product
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import astuple, replace

from turntake.rules.message import Attachment, Message
from turntake.rules.message_limits import DEPTH, LATEST_AT

LONGEST_ID = 1_024
"""In bytes. Real ids are far shorter, and an index does not take any length."""

T = TypeVar("T")
_TOO_DEEP = f"is nested too deeply: at most {DEPTH} levels are kept."
_NONE = type(None)
_PLAIN_TYPES = frozenset(
    (str, str, str, sent_at, tuple, reply_to, dict, int, int, amends, bool)
    for sent_at, reply_to, amends in product((int, _NONE), (str, _NONE), (str, _NONE))
)
"""The types that the fields of a message have, in their order."""
_WORDS: dict[type, str] = {int: "an integer", bool: "True or False"}


def sound(message: Message) -> Message:
    """The message, with what was plainly meant converted. Raises ValueError that says what to write instead."""
    return message if _is_plain(message) else _converted(message)


def _is_plain(message: Message) -> bool:
    """Whether nothing has to be converted, nor looked at more closely."""
    return (
        type(message) is Message
        and tuple(map(type, astuple(message))) in _PLAIN_TYPES
        and 0 < len(message.id) <= LONGEST_ID // 4
        and (message.sent_at is None or 0 <= message.sent_at <= LATEST_AT)
        and not message.attachments
        and (not message.metadata or _is_flat(message.metadata))
        and _is_whole(message.id, message.text, message.sender, message.reply_to, message.amends)
    )


def _is_flat(metadata: dict[Any, Any]) -> bool:
    """Whether it holds nothing but texts, which is what most platforms add."""
    texts = (*metadata, *metadata.values())
    return set(map(type, texts)) == {str} and _is_whole(*texts)


def _converted(message: Message) -> Message:
    if not isinstance(message, Message):
        raise ValueError(f"This is {_named(message)}, not a message: build one with Message(id=…, text=…).")
    return replace(
        message,
        id=_id(message.id),
        text=_text("text", message.text),
        sender=_name("sender", message.sender) or "",
        sent_at=_instant(message.sent_at),
        attachments=_attachments(message.attachments),
        reply_to=_name("reply_to", message.reply_to),
        metadata=_metadata("metadata", message.metadata),
        seq=_of_type("seq", message.seq, int),
        received_at=_of_type("received_at", message.received_at, int),
        amends=_name("amends", message.amends),
        is_deletion=_of_type("is_deletion", message.is_deletion, bool),
    )


def name_of(field: str, value: Any) -> str:
    """A name or an id as text; a number is what several platforms call a chat. Raises ValueError."""
    name = _name(field, value)
    if name is None:
        raise ValueError(f"`{field}` is None: write a text.")
    return name


def _id(value: Any) -> str:
    id = _name("id", value)
    if not id:
        raise ValueError(
            f"`id` is {'empty' if id == '' else 'None'}: give each message an id of its own, the platform's if it has "
            "one. A second message with the same id is taken for the first one again."
        )
    if len(id) * 4 > LONGEST_ID and len(id.encode()) > LONGEST_ID:
        raise ValueError(f"`id` is longer than {LONGEST_ID} bytes: send a shorter one, or its hash.")
    return id


def _name(field: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"`{field}` is {_named(value)}: write a text or an integer{_decode_it(value)}.")
    if not _is_whole(value):
        raise ValueError(f"`{field}` holds half a character, which cannot be stored: send whole ones.")
    return str.__str__(value)


def _text(field: str, value: Any) -> str:
    """Halves of characters, which come from texts that were cut, are replaced: no store takes them."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"`{field}` is {_named(value)}: write a text{_decode_it(value)}.")
    return value.encode("utf-8", "replace").decode()


def _instant(value: Any) -> int | None:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("`sent_at` is a datetime without a time zone: give it one, such as datetime.UTC.")
        value = round(value.timestamp() * 1000)
    if value is not None and type(value) is not int:
        raise ValueError(
            f"`sent_at` is {_named(value)}: write milliseconds since 1970 as an integer (seconds: "
            "`int(seconds * 1000)`), or a datetime with a time zone."
        )
    if value is not None and not 0 <= value <= LATEST_AT:
        raise ValueError("`sent_at` lies before 1970 or after 9999: give the time the person sent the message.")
    return value


def _attachments(value: Any) -> tuple[Attachment, ...]:
    if not isinstance(value, tuple | list):
        raise ValueError(f"`attachments` is {_named(value)}: write a tuple of Attachment(kind=…, url=…).")
    return tuple(map(_attachment, value))


def _attachment(value: Any) -> Attachment:
    if isinstance(value, dict):
        try:
            value = msgspec.convert(value, Attachment)
        except msgspec.ValidationError as error:
            raise ValueError(f"`attachments` holds a dict that is none: {error}.") from None
    if not isinstance(value, Attachment):
        raise ValueError(f"`attachments` holds a value {_named(value)}: write Attachment(kind=…, url=…) for each.")
    kind = _name("attachment.kind", value.kind)
    if not kind:
        raise ValueError('`attachment.kind` is missing: say what it is, such as "image", "voice" or "file".')
    return Attachment(
        kind=kind,
        url=_optional("attachment.url", value.url, _text),
        id=_name("attachment.id", value.id),
        mime_type=_optional("attachment.mime_type", value.mime_type, _text),
        name=_optional("attachment.name", value.name, _text),
        caption=_optional("attachment.caption", value.caption, _text),
        metadata=_metadata("attachment.metadata", value.metadata),
    )


def _optional(field: str, value: Any, check: Callable[[str, Any], T]) -> T | None:
    return None if value is None else check(field, value)


def _metadata(field: str, value: Any) -> dict[str, Any]:
    """As JSON would say it, which an agent behind HTTP must be able to read: a datetime as text, a key as text."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"`{field}` is {_named(value)}: write a dict.")
    try:
        plain: dict[str, Any] = msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{field}` holds what JSON cannot say ({error}): write it as text.") from None
    except RecursionError:
        raise ValueError(f"`{field}` {_TOO_DEEP}") from None
    _check_json(field, plain, DEPTH - 2)  # the message around it and the dict itself are the two levels outside
    return plain


def _check_json(field: str, value: Any, levels: int) -> None:
    if isinstance(value, str):
        if not _is_whole(value):
            raise ValueError(f"`{field}` holds half a character, which cannot be stored: send whole ones.")
    elif isinstance(value, dict | list):
        if levels < 0:
            raise ValueError(f"`{field}` {_TOO_DEEP}")
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_json(field, item, levels - 1)
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(f"`{field}` holds a number beyond 64 bits: write it as text.")


def _of_type(field: str, value: Any, kind: type[T]) -> T:
    if type(value) is not kind:
        raise ValueError(f"`{field}` is {_named(value)}: write {_WORDS[kind]}, or leave it out.")
    return value


def _is_whole(*texts: str | None) -> bool:
    """Whether no text holds half a character (a lone surrogate)."""
    everything = "".join(filter(None, texts))
    try:
        return everything.isascii() or bool(everything.encode())
    except UnicodeEncodeError:
        return False


def _named(value: object) -> str:
    return f"of type {type(value).__name__}"


def _decode_it(value: object) -> str:
    return " (bytes: `.decode()` them)" if isinstance(value, bytes | bytearray) else ""
