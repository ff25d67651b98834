"""WhatsApp's Cloud API: its webhooks as events. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turntake.platforms import address
from turntake.platforms.channel import ChatEvent, Option, ReplyStatus, ReplyStatusName, Request
from turntake.platforms.check import WhoAmI
from turntake.platforms.loose_json import at, named_texts, objects_at, present, text_at, time_at
from turntake.platforms.meta.webhooks import APP_SECRET, GRAPH, VERIFY_TOKEN, MetaChannel, api_base
from turntake.platforms.text_limit import TextLimit
from turntake.platforms.whatsapp import check
from turntake.platforms.whatsapp.content import MOST_ERRORS, content_of, error_of
from turntake.platforms.whatsapp.replies import MESSAGE_ID, WhatsAppReplies
from turntake.retry_after import excerpt

REFERRAL = ("source_type", "source_id", "source_url", "headline", "body", "ctwa_clid")
STATUSES: Mapping[str, ReplyStatusName] = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "played": "read",
    "failed": "failed",
}
"""WhatsApp's words for what became of a message of ours. A voice note that was played was read."""

People = Mapping[str, dict[str, Any]]
"""Contacts by id."""

_SAMPLE_NUMBER_ID = "100000000000001"


class WhatsApp(MetaChannel):
    """One app's phone numbers. Every number is an account of its own."""

    product = "whatsapp_business_account"
    title = "WhatsApp"
    text_limit = TextLimit(4096, "utf-16")
    options = (
        APP_SECRET,
        VERIFY_TOKEN,
        Option("access_token", "A system user's token that may send: whatsapp_business_messaging.", use="reply"),
        Option("phone_number_id", "The number that answers where a webhook named none.", is_secret=False),
        api_base(GRAPH),
    )
    replies = WhatsAppReplies

    def _events_of(self, entry: dict[str, Any]) -> Iterable[ChatEvent]:
        for change in objects_at(entry, "changes"):
            yield from _events_in(text_at(change, "field"), change.get("value"))

    def sample_id(self, unique: str) -> str:
        return MESSAGE_ID + unique

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        metadata = {
            "display_phone_number": "15550001111",
            "phone_number_id": self._values["phone_number_id"] or _SAMPLE_NUMBER_ID,
        }
        message = {"from": sender, "id": id, "timestamp": str(now // 1000), "type": "text", "text": {"body": text}}
        value = {
            "messaging_product": "whatsapp",
            "metadata": metadata,
            "contacts": [{"profile": {"name": "A person"}, "wa_id": sender}],
            "messages": [message],
        }
        return self._signed(url, {"id": "100000000000002", "changes": [{"value": value, "field": "messages"}]})

    def whoami(self) -> WhoAmI:
        return check.whoami(self._values)


def _events_in(field: str, value: Any) -> Iterator[ChatEvent]:
    """What one change says. Every other field (account, templates, calls …) is about something else than messages."""
    account = text_at(value, "metadata", "phone_number_id")
    if field in ("", "messages"):
        messages, statuses = objects_at(value, "messages"), objects_at(value, "statuses")
        people = _people_in(value)
        yield from (_message(account, people, message) for message in messages)
        yield from (_status(account, status) for status in statuses)
        # Beside messages, errors explain one of them, which then is unsupported anyway.
        if not messages and not statuses:
            yield from (
                ChatEvent(kind="error", account=account, metadata=error_of(e)) for e in objects_at(value, "errors")
            )
    if field in ("", "smb_message_echoes"):
        yield from (_echo(account, echo) for echo in objects_at(value, "message_echoes"))


def _message(account: str, people: People, message: dict[str, Any]) -> ChatEvent:
    contact = _contact_of(people, message)
    sender = text_at(message, "from") or _bsuid(message, contact) or text_at(contact, "wa_id")
    group, sent_at = text_at(message, "group_id"), time_at(message, "timestamp")
    content = content_of(message)
    is_whole = bool(sender) and (sent_at is not None or message.get("timestamp") in (None, ""))
    return ChatEvent(
        kind=content.kind if is_whole else "malformed",
        account=account,
        conversation=group or sender,
        sender=sender,
        id=text_at(message, "id"),
        text=content.text,
        attachments=content.attachments,
        sent_at=sent_at,
        reply_to=text_at(message, "context", "id") or None,
        is_group=bool(group),
        target=content.target,
        metadata={**_circumstances(message, contact), **content.metadata},
    )


def _people_in(value: Any) -> People:
    """The contacts by each of their ids; under "" the only one, whom a message without ids is from."""
    contacts = objects_at(value, "contacts")
    # The first of several with one id counts.
    known = {text_at(c, name): c for c in reversed(contacts) for name in ("wa_id", "user_id")}
    return known | {"": contacts[0] if len(contacts) == 1 else {}}


def _contact_of(people: People, message: dict[str, Any]) -> dict[str, Any]:
    ids = [id for name in ("from", "from_user_id") if (id := text_at(message, name))]
    return next((people[id] for id in ids or [""] if id in people), {})


def _bsuid(message: dict[str, Any], contact: dict[str, Any]) -> str:
    return text_at(message, "from_user_id") or text_at(contact, "user_id")


def _circumstances(message: dict[str, Any], contact: dict[str, Any]) -> dict[str, Any]:
    context = message.get("context")
    return present(
        profileName=text_at(contact, "profile", "name"),
        username=text_at(contact, "profile", "username"),
        senderBsuid=_bsuid(message, contact),
        **address.write_group(text_at(message, "group_id")),
        forwarded=at(context, "forwarded") is True or at(context, "frequently_forwarded") is True,
        quotedSender=text_at(context, "from"),
        quotedProduct=text_at(context, "referred_product", "product_retailer_id"),
        referral=named_texts(message.get("referral"), REFERRAL),
    )


def _status(account: str, status: dict[str, Any]) -> ChatEvent:
    name = STATUSES.get(text_at(status, "status"))
    error = _failure(status) if name == "failed" else ""
    return ChatEvent(
        kind="status",
        account=account,
        conversation=text_at(status, "recipient_id") or text_at(status, "recipient_user_id"),
        id=text_at(status, "id"),
        sent_at=time_at(status, "timestamp"),
        is_group=status.get("recipient_type") == "group",
        metadata=present(
            status=text_at(status, "status"),
            replyId=text_at(status, "biz_opaque_callback_data"),
            errors=[error_of(error) for error in objects_at(status, "errors")[:MOST_ERRORS]],
        ),
        reply=ReplyStatus(text_at(status, "biz_opaque_callback_data"), name, error) if name else None,
    )


def _failure(status: dict[str, Any]) -> str:
    """In WhatsApp's own words."""
    error = error_of(next(iter(objects_at(status, "errors")), {}))
    words = ": ".join(dict.fromkeys(str(error[name]) for name in ("title", "details") if name in error))
    code = f" (code {int(error['code'])})" if "code" in error else ""
    return excerpt(f"WhatsApp reports that the reply failed: {words or 'it gives no reason'}{code}")


def _echo(account: str, echo: dict[str, Any]) -> ChatEvent:
    content = content_of(echo)
    return ChatEvent(
        kind="echo",
        account=account,
        conversation=text_at(echo, "to") or text_at(echo, "to_user_id"),
        sender=text_at(echo, "from"),
        id=text_at(echo, "id"),
        text=content.text,
        attachments=content.attachments,
        sent_at=time_at(echo, "timestamp"),
    )
