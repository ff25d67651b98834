"""Messenger: its webhooks as events. Instagram's have the same form, and are read by the same class. Pure."""

from collections.abc import Iterable
from typing import Any, ClassVar

from turntake.platforms.channel import ChatEvent, Option, Request
from turntake.platforms.loose_json import at, object_at, objects_at, text_at, time_at
from turntake.platforms.messenger.content import Item, content_of
from turntake.platforms.messenger.replies import MessengerReplies
from turntake.platforms.meta.webhooks import APP_SECRET, GRAPH, VERIFY_TOKEN, MetaChannel, api_base
from turntake.platforms.text_limit import TextLimit

STANDBY = "standby"


class Messenger(MetaChannel):
    """One app's pages. Every page is an account of its own."""

    product = "page"
    title = "Messenger"
    text_limit = TextLimit(2000, "utf-16")
    options = (
        APP_SECRET,
        VERIFY_TOKEN,
        Option("access_token", "The page's access token, with pages_messaging.", use="reply"),
        api_base(GRAPH),
    )
    replies = MessengerReplies
    sample_account: ClassVar[str] = "100000000000003"

    def _events_of(self, entry: dict[str, Any]) -> Iterable[ChatEvent]:
        account = text_at(entry, "id")
        yield from (ChatEvent(kind=STANDBY, account=account, **_parties(item)) for item in standby_in(entry))
        yield from (_event(account, item) for item in items_in(entry))

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        item = {
            "sender": {"id": sender},
            "recipient": {"id": self.sample_account},
            "timestamp": now,
            "message": {"mid": id, "text": text},
        }
        return self._signed(url, {"id": self.sample_account, "time": now, "messaging": [item]})


def items_in(entry: dict[str, Any]) -> list[Item]:
    """The items of an entry, in any of Meta's envelopes: `messaging`, `changes`, or `value` on the entry itself.

    Comments and the like use the last two as well, but name no sender and recipient.
    """
    changes = [change for change in _changes(entry) if text_at(change, "field") != STANDBY]
    return objects_at(entry, "messaging") + _wrapped(changes)


def standby_in(entry: dict[str, Any]) -> list[Item]:
    """The same while another app has the thread: what is said there is for that one to answer."""
    changes = [change for change in _changes(entry) if text_at(change, "field") == STANDBY]
    return objects_at(entry, STANDBY) + _wrapped(changes)


def _changes(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return [*objects_at(entry, "changes"), entry]


def _wrapped(changes: list[dict[str, Any]]) -> list[Item]:
    values = [object_at(change, "value") for change in changes]
    return [value for value in values if at(value, "sender", "id") and at(value, "recipient", "id")]


def _parties(item: Item) -> dict[str, Any]:
    sender = text_at(item, "sender", "id") or text_at(item, "sender", "user_ref")
    return {"conversation": sender, "sender": sender, "sent_at": time_at(item, "timestamp")}


def _event(page: str, item: Item) -> ChatEvent:
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
