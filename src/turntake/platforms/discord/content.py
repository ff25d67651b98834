"""Discord's posts: what the gateway's events mean. Pure; `gateway.py` keeps the connection.

A chat is named by its channel, and a thread is a channel of its own.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from turntake.platforms.channel import ChatEvent
from turntake.platforms.loose_json import at, integer_at, number_at, object_at, objects_at, text_at, texts_at, time_in
from turntake.rules.message import Attachment

TYPING_MS = 10_000
"""A typing report lasts ten seconds, says Discord."""
EPOCH_MS = 1_420_070_400_000
"""2015, when Discord's ids begin to count."""
VOICE = 1 << 13
MEDIA = frozenset({"audio", "image", "video"})
SAID_TYPES = frozenset({0, 19})
"""The types of a message that a person wrote: a plain one, and a reply."""

_SNOWFLAKE = re.compile(r"[0-9]{1,20}")


def gateway_events(name: str, data: dict[str, Any], own_id: str) -> list[ChatEvent]:
    """What one dispatch of the gateway means; `own_id` is our bot's. [] for all that is not about messages."""
    if name == "MESSAGE_CREATE":
        return [_posted(data, own_id)]
    if name == "MESSAGE_UPDATE":
        return [_changed(data, own_id)]
    if name == "MESSAGE_DELETE":
        return [_deleted(data, own_id, text_at(data, "id"))]
    if name == "MESSAGE_DELETE_BULK":
        return [_deleted(data, own_id, id) for id in texts_at(data, "ids")]
    if name == "TYPING_START":
        return _typing(data, own_id)
    return [_reaction(name, data, own_id)] if name.startswith("MESSAGE_REACTION_") else []


def _about(data: dict[str, Any], own_id: str, kind: str) -> ChatEvent:
    return ChatEvent(
        kind=kind,
        account=own_id,
        conversation=text_at(data, "channel_id"),
        is_group=is_group(data, data.get("channel_type")),
    )


def _posted(post: dict[str, Any], own_id: str) -> ChatEvent:
    about = replace(
        _about(post, own_id, _authorship(post, own_id) or "message"),
        sender=text_at(post, "author", "id"),
        id=text_at(post, "id"),
        sent_at=time_in(text_at(post, "timestamp")) or created_at(text_at(post, "id")),
    )
    if about.kind != "message":
        return about
    text, attachments = _words(post), tuple(_attachments(post))
    # Without the intent for message content, what people write in a server arrives empty.
    kind = "message" if text or attachments else "empty"
    return replace(about, kind=kind, text=text, attachments=attachments, reply_to=_replied_to(post))


def _changed(post: dict[str, Any], own_id: str) -> ChatEvent:
    """An edit only if a person edited: link previews come the same way."""
    author, text = _authorship(post, own_id), _words(post)
    attachments = tuple(_attachments(post))
    edited = text_at(post, "edited_timestamp")
    if author or not edited or not (text or attachments):
        return _about(post, own_id, author or "message_update")
    return replace(
        _about(post, own_id, "edit"),
        sender=text_at(post, "author", "id"),
        id=edited,
        target=text_at(post, "id"),
        text=text,
        attachments=attachments,
        sent_at=time_in(edited),
    )


def _deleted(data: dict[str, Any], own_id: str, target: str) -> ChatEvent:
    """Discord does not say whose message it was."""
    return replace(_about(data, own_id, "delete" if target else "unsupported"), target=target)


def _typing(data: dict[str, Any], own_id: str) -> list[ChatEvent]:
    """A person's; what we and other bots show of ourselves is none."""
    person = text_at(data, "user_id")
    if person == own_id or at(data, "member", "user", "bot") is True:
        return []
    sent_at = time_in(data.get("timestamp"))
    return [replace(_about(data, own_id, "typing"), sender=person, sent_at=sent_at, ttl_ms=TYPING_MS)]


def _reaction(name: str, data: dict[str, Any], own_id: str) -> ChatEvent:
    metadata = {"emoji": text_at(data, "emoji", "name"), "is_removed": not name.endswith("_ADD")}
    about = _about(data, own_id, "reaction")
    return replace(about, sender=text_at(data, "user_id"), target=text_at(data, "message_id"), metadata=metadata)


def _authorship(post: dict[str, Any], own_id: str) -> str:
    """What a post is if no person wrote it: our own, a bot's, or Discord's own note; else ""."""
    if own_id and text_at(post, "author", "id") == own_id:
        return "echo"
    if at(post, "author", "bot") is True or post.get("webhook_id"):
        return "bot_message"
    return "" if (integer_at(post, "type") or 0) in SAID_TYPES else "system"


def _words(post: dict[str, Any]) -> str:
    """What was written, or of a forwarded message what is in it."""
    forwarded = (_forwarded_words(object_at(each, "message")) for each in objects_at(post, "message_snapshots"))
    return text_at(post, "content") or "\n".join(filter(None, forwarded))


def _forwarded_words(post: dict[str, Any]) -> str:
    """Its text, or where it has none, that of the cards in it, which bots post and links become."""
    cards = objects_at(post, "embeds")
    lines = (text_at(card, name) for card in cards for name in ("title", "description", "url"))
    return text_at(post, "content") or "\n".join(filter(None, lines))


def _attachments(post: dict[str, Any]) -> Iterator[Attachment]:
    for source in (post, *(object_at(each, "message") for each in objects_at(post, "message_snapshots"))):
        is_voice = bool((integer_at(source, "flags") or 0) & VOICE)
        yield from (attachment_of(file, is_voice) for file in objects_at(source, "attachments"))
        for sticker in objects_at(source, "sticker_items"):
            yield Attachment("sticker", id=text_at(sticker, "id") or None, name=text_at(sticker, "name") or None)
        if poll := object_at(source, "poll"):
            yield _poll(poll)


def _poll(poll: dict[str, Any]) -> Attachment:
    options = [text_at(answer, "poll_media", "text") for answer in objects_at(poll, "answers")]
    return Attachment("poll", name=text_at(poll, "question", "text") or None, metadata={"options": options})


def attachment_of(file: dict[str, Any], is_voice: bool) -> Attachment:
    """A file. Its URL is signed by Discord, and expires."""
    mime = text_at(file, "content_type")
    family = mime.partition("/")[0]
    return Attachment(
        kind="voice" if is_voice else family if family in MEDIA else "file",
        url=text_at(file, "url") or None,
        id=text_at(file, "id") or None,
        mime_type=mime or None,
        name=text_at(file, "filename") or None,
        caption=text_at(file, "description") or None,
        metadata=_duration(file),
    )


def _duration(file: dict[str, Any]) -> dict[str, Any]:
    seconds = number_at(file, "duration_secs")
    return {"duration_ms": round(seconds * 1000)} if seconds and seconds > 0 else {}


def _replied_to(post: dict[str, Any]) -> str | None:
    """The message it answers. A forwarded one is named the same way, but is not an answer."""
    is_forward = integer_at(post, "message_reference", "type") == 1
    return None if is_forward else text_at(post, "message_reference", "message_id") or None


def is_group(payload: dict[str, Any], channel_type: object) -> bool:
    """Whether it is in a server, or in a private chat of several."""
    return bool(payload.get("guild_id")) or channel_type == 3


def created_at(id: str) -> int | None:
    """The instant that is in each of Discord's ids."""
    return (int(id) >> 22) + EPOCH_MS if _SNOWFLAKE.fullmatch(id) else None
