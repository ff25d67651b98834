"""What one item of Messenger's or Instagram's webhooks holds, by the key that is present. Pure."""

from collections.abc import Callable
from typing import Any

from turntake.platforms.loose_json import at, named_texts, number_at, objects_at, present, text_at, time_at
from turntake.platforms.meta.content import Content
from turntake.rules.message import Attachment

REFERRAL = ("ref", "source", "type", "ad_id", "referer_uri")
ATTACHED = ("sticker_id", "reel_video_id", "ig_post_media_id", "story_media_id")
THUMBS_UP = ("369239263222822", "369239343222814", "369239383222810")
MOST_ATTACHMENTS = 30  # Messenger puts up to 30 images into one message

Item = dict[str, Any]


def content_of(item: Item) -> Content:
    """What an item holds, by the key that is present; `other` if none of ours is."""
    for name, read in READERS.items():
        if isinstance(part := item.get(name), dict):
            return read(part)
    return Content("other")


def _message(part: Item) -> Content:
    mid = text_at(part, "mid")
    kind = _kind_of(part)
    if kind == "delete":
        return Content(kind, mid, target=mid)
    return Content(
        kind,
        mid,
        text_at(part, "text"),
        _attachments(part) if kind != "unsupported" else (),
        reply_to=text_at(part, "reply_to", "mid") or None,
        metadata=present(
            payload=text_at(part, "quick_reply", "payload"),
            story=named_texts(at(part, "reply_to", "story"), ("id", "url")),
            referral=named_texts(part.get("referral"), REFERRAL),
            appId=text_at(part, "app_id"),
        ),
    )


def _kind_of(part: Item) -> str:
    # `is_self` is our own account talking to itself: to answer it would never end.
    if part.get("is_echo") is True or part.get("is_self") is True:
        return "echo"
    if part.get("is_deleted") is True and part.get("mid"):
        return "delete"
    return "unsupported" if part.get("is_unsupported") is True else "message"


def _attachments(part: Item) -> tuple[Attachment, ...]:
    attached = objects_at(part, "attachments")[:MOST_ATTACHMENTS]
    stickers = {text_at(a, "payload", "sticker_id") for a in attached if a.get("type") == "sticker"} - {""}
    # Until August 2026 a sticker came twice: as itself and as an image.
    return tuple(
        _attachment(a)
        for a in attached
        if a.get("type") == "sticker" or text_at(a, "payload", "sticker_id") not in stickers
    )


def _attachment(attachment: Item) -> Attachment:
    payload = attachment.get("payload")
    ids = named_texts(payload, ATTACHED)
    title = text_at(payload, "title") or text_at(attachment, "title")
    return Attachment(
        kind=text_at(attachment, "type") or "unknown",
        url=text_at(payload, "url") or text_at(attachment, "url") or None,
        name=title or ("\N{THUMBS UP SIGN}" if ids.get("sticker_id") in THUMBS_UP else None),
        metadata={
            **present(
                latitude=number_at(payload, "coordinates", "lat"), longitude=number_at(payload, "coordinates", "long")
            ),
            **ids,
        },
    )


def _edit(part: Item) -> Content:
    """The message's new text. Without one, as Instagram tells of new messages at times, it says nothing."""
    target, is_whole = text_at(part, "mid"), isinstance(part.get("text"), str)
    kind = "edit" if target and is_whole else "unsupported"
    return Content(kind, text=text_at(part, "text"), target=target, metadata=present(edits=text_at(part, "num_edit")))


def _reaction(part: Item) -> Content:
    metadata = present(emoji=text_at(part, "emoji"), reaction=text_at(part, "reaction"))
    removed = {"removed": part.get("action") == "unreact"}
    return Content("reaction", target=text_at(part, "mid"), metadata={**metadata, **removed})


def _postback(part: Item) -> Content:
    payload = text_at(part, "payload")
    metadata = present(payload=payload, referral=named_texts(part.get("referral"), REFERRAL))
    return Content("postback", text_at(part, "mid"), text_at(part, "title") or payload, metadata=metadata)


def _status(status: str) -> Callable[[Item], Content]:
    def read(part: Item) -> Content:
        return Content("status", metadata=present(status=status, watermark=time_at(part, "watermark")))

    return read


def _named(kind: str, names: tuple[str, ...]) -> Callable[[Item], Content]:
    def read(part: Item) -> Content:
        return Content(kind, metadata=dict(named_texts(part, names)))

    return read


READERS: dict[str, Callable[[Item], Content]] = {
    "message": _message,
    "message_edit": _edit,
    "reaction": _reaction,
    "postback": _postback,
    "delivery": _status("delivered"),
    "read": _status("read"),
    "optin": _named("optin", ("type", "ref", "payload", "title")),
    "referral": _named("referral", REFERRAL),
}
