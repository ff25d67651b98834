"""What one Telegram message says, part by part. Pure; a part of another shape than Telegram's counts as missing."""

from typing import Any

from turntake.platforms import address
from turntake.platforms.loose_json import at, named_facts, number_at, object_at, objects_at, present, text_at, time_at
from turntake.rules.message import Attachment

Post = dict[str, Any]
"""A message object, or another one with the same fields for chat, sender and thread."""

GROUPS = frozenset({"group", "supergroup"})

# The order matters: an animation fills `document` too, a venue `location`, a live photo `photo`.
FILES = ("animation", "photo", "live_photo", "video", "video_note", "voice", "audio", "sticker", "document")
NAMED = ("paid_media", "game", "story", "checklist", "invoice")
FILE_FACTS = {"duration": "duration", "file_size": "size", "emoji": "emoji"}
CONTACT_FACTS = {"phone_number": "phoneNumber", "user_id": "userId", "vcard": "vcard"}
DICE_FACTS = {"emoji": "emoji", "value": "value"}


def conversation_of(post: Post) -> str:
    """The chat's id; that of a connected business account comes with the connection's, through which we answer."""
    return address.write_chat(text_at(post, "business_connection_id"), text_at(post, "chat", "id"))


def sender_of(post: Post) -> str:
    """Who wrote; for a person who speaks as a chat, that chat."""
    return text_at(post.get("sender_chat") or post.get("from"), "id")


def topic_of(post: Post) -> str:
    """The topic of a forum. A thread id alone also marks plain chains of replies."""
    return text_at(post, "message_thread_id") if post.get("is_topic_message") is True else ""


def is_group(post: Post) -> bool:
    return text_at(post, "chat", "type") in GROUPS


def is_by_owner(post: Post) -> bool:
    """Whether, in a business account's chat with a person, it is the account's side that wrote."""
    return text_at(post, "chat", "type") == "private" and sender_of(post) != text_at(post, "chat", "id")


def text_of(post: Post) -> str:
    return text_at(post, "text") or text_at(post, "caption")


def reply_to_of(post: Post) -> str | None:
    """The message replied to. Everything in a topic replies to the message that opened it, which says nothing."""
    replied = text_at(post, "reply_to_message", "message_id")
    return replied if replied and replied != topic_of(post) else None


def label_of(post: Post, data: str) -> str:
    """What is written on the button with this data, if the message still shows it."""
    rows = at(post, "reply_markup", "inline_keyboard")
    buttons = [button for row in rows for button in objects_at(row)] if isinstance(rows, list) else []
    return next((text_at(button, "text") for button in buttons if button.get("callback_data") == data), "")


def metadata_of(post: Post) -> dict[str, Any]:
    facts = {
        "senderName": _name(post.get("sender_chat") or post.get("from")),
        "username": text_at(post, "from", "username"),
        "groupKey": text_at(post, "media_group_id"),
        "quote": text_at(post, "quote", "text"),
        "externalReplyTo": text_at(post, "external_reply", "message_id"),
        "forwardedFrom": _origin(post.get("forward_origin")),
        "viaBot": text_at(post, "via_bot", "username"),
        "editedAt": time_at(post, "edit_date"),
    }
    return {name: value for name, value in facts.items() if value}


def attachments_of(post: Post) -> tuple[Attachment, ...]:
    """The message's one medium, if it has one; an album is one message for each."""
    for kind in FILES:
        if kind in post and (attachment := _file(kind, post)):
            return (attachment,)
    attachment = _location(post) or _contact(post) or _poll(post) or _dice(post)
    if attachment is None and (kind := next((kind for kind in NAMED if object_at(post, kind)), "")):
        attachment = Attachment(kind)
    return (attachment,) if attachment else ()


def _file(kind: str, post: Post) -> Attachment | None:
    file = object_at(post, kind)
    if kind == "photo":
        sizes = objects_at(post, kind)
        kind, file = "image", sizes[-1] if sizes else {}  # it comes in several sizes, the largest last
    if not file:
        return None
    return Attachment(
        kind,
        id=text_at(file, "file_id") or None,
        mime_type=text_at(file, "mime_type") or None,
        name=text_at(file, "file_name") or None,
        metadata=named_facts(file, FILE_FACTS),
    )


def _location(post: Post) -> Attachment | None:
    venue = object_at(post, "venue")
    location = object_at(venue, "location") or object_at(post, "location")
    latitude, longitude = number_at(location, "latitude"), number_at(location, "longitude")
    if latitude is None or longitude is None or max(abs(latitude), abs(longitude)) > 360:
        return None
    metadata = {"latitude": latitude, "longitude": longitude} | present(address=text_at(venue, "address"))
    return Attachment("location", name=text_at(venue, "title") or None, metadata=metadata)


def _contact(post: Post) -> Attachment | None:
    contact = object_at(post, "contact")
    metadata = named_facts(contact, CONTACT_FACTS)
    return Attachment("contact", name=_name(contact) or None, metadata=metadata) if contact else None


def _poll(post: Post) -> Attachment | None:
    poll = object_at(post, "poll")
    metadata = {"options": [text_at(option, "text") for option in objects_at(poll, "options")]}
    return Attachment("poll", name=text_at(poll, "question") or None, metadata=metadata) if poll else None


def _dice(post: Post) -> Attachment | None:
    dice = object_at(post, "dice")
    return Attachment("dice", metadata=named_facts(dice, DICE_FACTS)) if dice else None


def _name(who: object) -> str:
    """A person's name, or a chat's."""
    parts = (text_at(who, "first_name"), text_at(who, "last_name"))
    return " ".join(filter(None, parts)) or text_at(who, "title")


def _origin(origin: Any) -> str:
    """Whom a forwarded message came from, as far as that person lets others know."""
    who = at(origin, "sender_user") or at(origin, "sender_chat") or at(origin, "chat")
    return _name(who) or text_at(origin, "sender_user_name") or text_at(who, "id")
