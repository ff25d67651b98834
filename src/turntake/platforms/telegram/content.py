"""What one Telegram message says, part by part. Pure; a part of another shape than Telegram's counts as missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from turntake.rules.message import Attachment

Thing = Mapping[str, Any]

GROUPS = frozenset({"group", "supergroup"})
LATEST_S = 253_402_300_799  # the end of the year 9999
LARGEST = 2**63 - 1

# The order matters: an animation fills `document` too, a venue `location`, a live photo `photo`.
FILES = ("animation", "photo", "live_photo", "video", "video_note", "voice", "audio", "sticker", "document")
NAMED = ("paid_media", "game", "story", "checklist", "invoice")
FACTS = {"duration": "duration", "file_size": "size", "emoji": "emoji"}


def thing(value: object) -> Thing:
    return value if isinstance(value, dict) else {}


def things(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def words(value: object) -> str:
    return value if isinstance(value, str) else ""


def number(value: object) -> int | None:
    """A whole number that every store can keep."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST else None


def id_of(value: object) -> str:
    """An id as text. Telegram's are numbers of up to 64 bits."""
    whole = number(value)
    return words(value) if whole is None else str(whole)


def instant(value: object) -> int | None:
    """Milliseconds, of Telegram's seconds. 0 stands for a message that the bot may no longer see."""
    seconds = number(value)
    return seconds * 1000 if seconds is not None and 0 < seconds <= LATEST_S else None


def conversation_of(said: Thing) -> str:
    """The chat's id; that of a connected business account comes with the connection's, through which we answer."""
    chat, connection = id_of(thing(said.get("chat")).get("id")), id_of(said.get("business_connection_id"))
    return f"{connection}/{chat}" if connection and chat else chat


def sender_of(said: Thing) -> str:
    """Who wrote; for a person who speaks as a chat, that chat."""
    return id_of(thing(said.get("sender_chat") or said.get("from")).get("id"))


def topic_of(said: Thing) -> str:
    """The topic of a forum. A thread id alone also marks plain chains of replies."""
    return id_of(said.get("message_thread_id")) if said.get("is_topic_message") is True else ""


def is_group(said: Thing) -> bool:
    return words(thing(said.get("chat")).get("type")) in GROUPS


def is_by_owner(said: Thing) -> bool:
    """Whether, in a business account's chat with a person, it is the account's side that wrote."""
    chat = thing(said.get("chat"))
    return chat.get("type") == "private" and sender_of(said) != id_of(chat.get("id"))


def text_of(said: Thing) -> str:
    return words(said.get("text")) or words(said.get("caption"))


def reply_to_of(said: Thing) -> str | None:
    """The message replied to. Everything in a topic replies to the message that opened it, which says nothing."""
    replied = id_of(thing(said.get("reply_to_message")).get("message_id"))
    return replied if replied and replied != topic_of(said) else None


def label_of(message: Thing, data: str) -> str:
    """What is written on the button with this data, if the message still shows it."""
    rows = things(thing(message.get("reply_markup")).get("inline_keyboard"))
    buttons = [thing(button) for row in rows for button in things(row)]
    return next((words(button.get("text")) for button in buttons if button.get("callback_data") == data), "")


def metadata_of(said: Thing) -> dict[str, Any]:
    external = thing(said.get("external_reply"))
    found = {
        "senderName": _name(said.get("sender_chat") or said.get("from")),
        "username": words(thing(said.get("from")).get("username")),
        "groupKey": id_of(said.get("media_group_id")),
        "quote": words(thing(said.get("quote")).get("text")),
        "externalReplyTo": id_of(external.get("message_id")),
        "forwardedFrom": _origin(thing(said.get("forward_origin"))),
        "viaBot": words(thing(said.get("via_bot")).get("username")),
        "editedAt": instant(said.get("edit_date")),
    }
    return {name: value for name, value in found.items() if value}


def attachments_of(said: Thing) -> tuple[Attachment, ...]:
    """The message's one medium, if it has one; an album is one message for each."""
    for kind in FILES:
        if attachment := _file(kind, said.get(kind)):
            return (attachment,)
    found = _place(said) or _contact(said) or _poll(said) or _dice(said)
    if found is None and (kind := next((kind for kind in NAMED if thing(said.get(kind))), "")):
        found = Attachment(kind)
    return (found,) if found else ()


def _file(kind: str, value: object) -> Attachment | None:
    """A photo comes in several sizes, the largest last."""
    if kind == "photo":
        sizes = things(value)
        kind, value = "image", sizes[-1] if sizes else None
    file = thing(value)
    if not file:
        return None
    facts = {name: file[field] for field, name in FACTS.items() if _is_plain(file.get(field))}
    mime_type, name = words(file.get("mime_type")), words(file.get("file_name"))
    return Attachment(kind, None, id_of(file.get("file_id")) or None, mime_type or None, name or None, None, facts)


def _place(said: Thing) -> Attachment | None:
    venue = thing(said.get("venue"))
    at = thing(venue.get("location")) or thing(said.get("location"))
    latitude, longitude = at.get("latitude"), at.get("longitude")
    if not (_is_degrees(latitude) and _is_degrees(longitude)):
        return None
    address = {"address": venue["address"]} if words(venue.get("address")) else {}
    where = {"latitude": latitude, "longitude": longitude, **address}
    return Attachment("location", name=words(venue.get("title")) or None, metadata=where)


def _contact(said: Thing) -> Attachment | None:
    contact = thing(said.get("contact"))
    if not contact:
        return None
    fields = {"phone_number": "phoneNumber", "user_id": "userId", "vcard": "vcard"}
    facts = {name: contact[field] for field, name in fields.items() if _is_plain(contact.get(field))}
    return Attachment("contact", name=_name(contact) or None, metadata=facts)


def _poll(said: Thing) -> Attachment | None:
    poll = thing(said.get("poll"))
    options = [words(thing(option).get("text")) for option in things(poll.get("options"))]
    return Attachment("poll", name=words(poll.get("question")) or None, metadata={"options": options}) if poll else None


def _dice(said: Thing) -> Attachment | None:
    dice = thing(said.get("dice"))
    facts = {field: dice[field] for field in ("emoji", "value") if _is_plain(dice.get(field))}
    return Attachment("dice", metadata=facts) if dice else None


def _name(value: object) -> str:
    """A person's name, or a chat's."""
    who = thing(value)
    parts = (words(who.get("first_name")), words(who.get("last_name")))
    return " ".join(filter(None, parts)) or words(who.get("title"))


def _origin(origin: Thing) -> str:
    """Whom a forwarded message came from, as far as that person lets others know."""
    who = thing(origin.get("sender_user") or origin.get("sender_chat") or origin.get("chat"))
    return _name(who) or words(origin.get("sender_user_name")) or id_of(who.get("id"))


def _is_plain(value: object) -> bool:
    return isinstance(value, str) or number(value) is not None


def _is_degrees(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -360 <= value <= 360
