"""What one Telegram message says, part by part. Pure; a part of another shape than Telegram's counts as missing."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from turntake.platforms import address
from turntake.platforms.loose_json import at, named_facts, number_at, object_at, objects_at, present, text_at, time_at
from turntake.platforms.telegram.rich_message import blocks_in, words_in
from turntake.rules.message import Attachment
from turntake.rules.message_limits import ATTACHMENTS

Post = dict[str, Any]
"""A message object, or another one with the same fields for chat, sender and thread."""

GROUPS = frozenset({"group", "supergroup"})

# The order matters: an animation fills `document` too, a venue `location`, a live photo `photo`.
FILES = ("animation", "photo", "live_photo", "video", "video_note", "voice", "audio", "sticker", "document")
NAMED = ("paid_media", "game", "story", "invoice")
IN_BLOCKS = ("photo", "video", "audio", "animation", "voice_note")
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
    """The topic of a forum, or a person's own in the direct messages of a channel.

    A thread id alone also marks plain chains of replies.
    """
    if direct := text_at(post, "direct_messages_topic", "topic_id"):
        return address.write_direct_thread(direct)
    return text_at(post, "message_thread_id") if post.get("is_topic_message") is True else ""


def is_group(post: Post) -> bool:
    """The direct messages of a channel come as a supergroup, but in each topic one person talks to the channel."""
    return text_at(post, "chat", "type") in GROUPS and not _is_direct(post)


def is_by_owner(post: Post) -> bool:
    """Whether it is our side that wrote: the owner of a business account, or a channel in its direct messages."""
    if _is_direct(post):
        person = text_at(post, "direct_messages_topic", "user", "id")
        return sender_of(post) != person if person else "sender_chat" in post
    is_business = bool(post.get("business_connection_id")) and text_at(post, "chat", "type") == "private"
    return is_business and sender_of(post) != text_at(post, "chat", "id")


def _is_direct(post: Post) -> bool:
    return "direct_messages_topic" in post or at(post, "chat", "is_direct_messages") is True


def text_of(post: Post) -> str:
    return (
        text_at(post, "text")
        or text_at(post, "caption")
        or words_in(post.get("rich_message"))
        or text_at(post, "web_app_data", "data")
    )


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
        "payload": text_at(post, "web_app_data", "data"),
        "buttonText": text_at(post, "web_app_data", "button_text"),
        "editedAt": time_at(post, "edit_date"),
    }
    return {name: value for name, value in facts.items() if value}


def attachments_of(post: Post) -> tuple[Attachment, ...]:
    """The message's one medium, if it has one; an album is one message for each. A rich message may have several, and
    a person may share several contacts."""
    for kind in FILES:
        if kind in post and (attachment := _file(kind, post)):
            return (attachment,)
    attachment = _location(post) or _contact(post) or _poll(post) or _dice(post) or _checklist(post) or _chat(post)
    if attachment is None and (kind := next((kind for kind in NAMED if object_at(post, kind)), "")):
        attachment = Attachment(kind)
    if attachment is not None:
        return (attachment,)
    return tuple(islice((*_in_blocks(post), *_people(post)), ATTACHMENTS))


def _in_blocks(post: Post) -> Iterator[Attachment]:
    for block in blocks_in(post.get("rich_message")):
        files = (_file(kind, block) for kind in IN_BLOCKS if kind in block)
        yield from filter(None, (*files, _location(block)))


def _file(kind: str, post: Post) -> Attachment | None:
    file = object_at(post, kind)
    if kind == "photo":
        sizes = objects_at(post, kind)
        kind, file = "image", sizes[-1] if sizes else {}  # it comes in several sizes, the largest last
    if not file:
        return None
    return Attachment(
        "voice" if kind == "voice_note" else kind,
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


def _checklist(post: Post) -> Attachment | None:
    checklist = object_at(post, "checklist")
    metadata = {"tasks": [text_at(task, "text") for task in objects_at(checklist, "tasks")]}
    return Attachment("checklist", name=text_at(checklist, "title") or None, metadata=metadata) if checklist else None


def _chat(post: Post) -> Attachment | None:
    """A chat that the person chose for us."""
    chat = object_at(post, "chat_shared")
    name = text_at(chat, "title") or text_at(chat, "username")
    return Attachment("chat", id=text_at(chat, "chat_id") or None, name=name or None) if chat else None


def _people(post: Post) -> Iterator[Attachment]:
    """People whom the person chose for us. Telegram names them only if the bot asked for their names."""
    for user in objects_at(post, "users_shared", "users"):
        name = _name(user) or text_at(user, "username")
        yield Attachment("contact", name=name or None, metadata=named_facts(user, CONTACT_FACTS))


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
