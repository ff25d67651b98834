"""Messenger: its webhooks as events. Instagram speaks the same language, with an accent."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec

from turntake.platforms.channel import ChatEvent, Option, Request
from turntake.platforms.loose_json import at, objects_at, text_at
from turntake.platforms.meta.webhooks import (
    APP_SECRET,
    GRAPH,
    VERIFY_TOKEN,
    MetaChannel,
    api_base,
    extras,
    instant,
    number_at,
    texts_at,
)
from turntake.rules.message import Attachment

REFERRAL = ("ref", "source", "type", "ad_id", "referer_uri")
ATTACHED = ("sticker_id", "reel_video_id", "ig_post_media_id", "story_media_id")
THUMBS_UP = ("369239263222822", "369239343222814", "369239383222810")
MOST_ATTACHMENTS = 30


class Messenger(MetaChannel):
    """One app's pages. Every page is an account of its own."""

    product = "page"
    name = "messenger"
    options = (
        APP_SECRET,
        VERIFY_TOKEN,
        Option("access_token", "The page's access token, with pages_messaging.", use="reply"),
        api_base(GRAPH),
    )
    sample_account: ClassVar[str] = "100000000000003"

    def _events_of(self, entry: dict[str, Any]) -> Iterable[ChatEvent]:
        account = text_at(entry, "id")
        # Another app has the thread: what is said there is for that one to answer.
        yield from (
            ChatEvent(kind="standby", account=account, **_parties(item)) for item in objects_at(entry, "standby")
        )
        yield from (_event(account, item) for item in items_in(entry))

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        said = {
            "sender": {"id": sender},
            "recipient": {"id": self.sample_account},
            "timestamp": now,
            "message": {"mid": id, "text": text},
        }
        return self._signed(url, {"id": self.sample_account, "time": now, "messaging": [said]})


class Content(msgspec.Struct, frozen=True):
    """What one item holds, whoever sent it."""

    kind: str = "message"
    id: str = ""
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    target: str = ""
    metadata: dict[str, Any] = {}


def items_in(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of an entry, in any of Meta's envelopes: `messaging`, `changes`, or `value` on the entry itself.

    Comments and the like use the last two as well, but go from nobody to nobody.
    """
    wrapped = [at(change, "value") for change in [*objects_at(entry, "changes"), entry]]
    return objects_at(entry, "messaging") + [v for v in wrapped if at(v, "sender", "id") and at(v, "recipient", "id")]


def _parties(item: dict[str, Any]) -> dict[str, Any]:
    sender = text_at(item, "sender", "id") or text_at(item, "sender", "user_ref")
    return {"conversation": sender, "sender": sender, "sent_at": instant(item.get("timestamp"))}


def _event(page: str, item: dict[str, Any]) -> ChatEvent:
    content = content_of(item)
    account = text_at(item, "recipient", "id")
    parties = _parties(item)
    kind = content.kind
    if kind == "echo":
        account, parties["conversation"] = parties["sender"], account
    elif kind in ("message", "postback", "edit", "delete") and not parties["sender"]:
        kind = "malformed"
    return ChatEvent(
        kind=kind,
        account=account or page,
        **parties,
        id=content.id,
        text=content.text,
        attachments=content.attachments,
        reply_to=content.reply_to,
        target=content.target,
        metadata=content.metadata,
    )


def content_of(item: dict[str, Any]) -> Content:
    """What an item holds, by the key that is present; `other` if none of ours is."""
    for name, read in READERS.items():
        if isinstance(held := item.get(name), dict):
            return read(held)
    return Content("other")


def _message(held: dict[str, Any]) -> Content:
    mid = text_at(held, "mid")
    kind = _kind_of(held)
    if kind == "delete":
        return Content(kind, mid, target=mid)
    return Content(
        kind,
        mid,
        text_at(held, "text"),
        _attachments(held) if kind != "unsupported" else (),
        reply_to=text_at(held, "reply_to", "mid") or None,
        metadata=extras(
            payload=text_at(held, "quick_reply", "payload"),
            story=texts_at(at(held, "reply_to", "story"), ("id", "url")),
            referral=texts_at(held.get("referral"), REFERRAL),
            appId=text_at(held, "app_id"),
        ),
    )


def _kind_of(held: dict[str, Any]) -> str:
    # `is_self` is our own account talking to itself: to answer it would never end.
    if held.get("is_echo") is True or held.get("is_self") is True:
        return "echo"
    if held.get("is_deleted") is True and held.get("mid"):
        return "delete"
    return "unsupported" if held.get("is_unsupported") is True else "message"


def _attachments(held: dict[str, Any]) -> tuple[Attachment, ...]:
    given = objects_at(held, "attachments")[:MOST_ATTACHMENTS]
    stickers = {text_at(a, "payload", "sticker_id") for a in given if a.get("type") == "sticker"} - {""}
    # Until August 2026 a sticker came twice: as itself and as an image.
    return tuple(
        _attachment(a)
        for a in given
        if a.get("type") == "sticker" or text_at(a, "payload", "sticker_id") not in stickers
    )


def _attachment(given: dict[str, Any]) -> Attachment:
    payload = given.get("payload")
    found = texts_at(payload, ATTACHED)
    title = text_at(payload, "title") or text_at(given, "title")
    return Attachment(
        kind=text_at(given, "type") or "unknown",
        url=text_at(payload, "url") or text_at(given, "url") or None,
        name=title or ("\N{THUMBS UP SIGN}" if found.get("sticker_id") in THUMBS_UP else None),
        metadata={
            **extras(
                latitude=number_at(payload, "coordinates", "lat"), longitude=number_at(payload, "coordinates", "long")
            ),
            **found,
        },
    )


def _edit(held: dict[str, Any]) -> Content:
    """The message's new text. Without one, as Instagram tells of new messages at times, it says nothing."""
    target, is_whole = text_at(held, "mid"), isinstance(held.get("text"), str)
    kind = "edit" if target and is_whole else "unsupported"
    return Content(kind, text=text_at(held, "text"), target=target, metadata=extras(edits=text_at(held, "num_edit")))


def _reaction(held: dict[str, Any]) -> Content:
    metadata = extras(emoji=text_at(held, "emoji"), reaction=text_at(held, "reaction"))
    removed = {"removed": held.get("action") == "unreact"}
    return Content("reaction", target=text_at(held, "mid"), metadata={**metadata, **removed})


def _postback(held: dict[str, Any]) -> Content:
    payload = text_at(held, "payload")
    metadata = extras(payload=payload, referral=texts_at(held.get("referral"), REFERRAL))
    return Content("postback", text_at(held, "mid"), text_at(held, "title") or payload, metadata=metadata)


def _status(status: str) -> Callable[[dict[str, Any]], Content]:
    def read(held: dict[str, Any]) -> Content:
        return Content("status", metadata=extras(status=status, watermark=instant(held.get("watermark"))))

    return read


def _named(kind: str, names: tuple[str, ...]) -> Callable[[dict[str, Any]], Content]:
    def read(held: dict[str, Any]) -> Content:
        return Content(kind, metadata=dict(texts_at(held, names)))

    return read


READERS: dict[str, Callable[[dict[str, Any]], Content]] = {
    "message": _message,
    "message_edit": _edit,
    "reaction": _reaction,
    "postback": _postback,
    "delivery": _status("delivered"),
    "read": _status("read"),
    "optin": _named("optin", ("type", "ref", "payload", "title")),
    "referral": _named("referral", REFERRAL),
}
