"""WhatsApp's Cloud API: its webhooks as events."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from turntake.accept.channel import Event, Option, Request
from turntake.accept.meta import (
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
from turntake.foreign import at, objects_at, text_at
from turntake.rules.message import Attachment

REFERRAL = ("source_type", "source_id", "source_url", "headline", "body", "ctwa_clid")
INTERACTIVE = ("button_reply", "list_reply")
MOST_CONTACTS = 20
MOST_ITEMS = 50

People = Mapping[str, dict[str, Any]]
"""Contacts by id."""

_SAMPLE_NUMBER_ID = "100000000000001"


class WhatsApp(MetaChannel):
    """One app's phone numbers. Every number is an account of its own."""

    product = "whatsapp_business_account"
    name = "whatsapp"
    options = (
        APP_SECRET,
        VERIFY_TOKEN,
        Option("access_token", "A system user's token that may send: whatsapp_business_messaging.", use="reply"),
        Option("phone_number_id", "The number that answers where a webhook named none.", is_secret=False),
        api_base(GRAPH),
    )

    def _events_of(self, entry: dict[str, Any]) -> Iterable[Event]:
        for change in objects_at(entry, "changes"):
            yield from _events_in(text_at(change, "field"), change.get("value"))

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        metadata = {
            "display_phone_number": "15550001111",
            "phone_number_id": self._given["phone_number_id"] or _SAMPLE_NUMBER_ID,
        }
        said = {"from": sender, "id": id, "timestamp": str(now // 1000), "type": "text", "text": {"body": text}}
        value = {
            "messaging_product": "whatsapp",
            "metadata": metadata,
            "contacts": [{"profile": {"name": "A person"}, "wa_id": sender}],
            "messages": [said],
        }
        return self._signed(url, {"id": "100000000000002", "changes": [{"value": value, "field": "messages"}]})


class Content(msgspec.Struct, frozen=True):
    """What one message holds, whoever sent it."""

    kind: str = "message"
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    target: str = ""
    metadata: dict[str, Any] = {}


UNSUPPORTED = Content("unsupported")


def _events_in(field: str, value: Any) -> Iterator[Event]:
    """What one change says. Every other field (account, templates, calls …) is about something else than messages."""
    account = text_at(value, "metadata", "phone_number_id")
    if field in ("", "messages"):
        messages, statuses = objects_at(value, "messages"), objects_at(value, "statuses")
        people = _people_in(value)
        yield from (_message(account, people, message) for message in messages)
        yield from (_status(account, status) for status in statuses)
        # Beside messages, errors explain one of them, which then is unsupported anyway.
        if not messages and not statuses:
            yield from (Event(kind="error", account=account, metadata=_error(e)) for e in objects_at(value, "errors"))
    if field in ("", "smb_message_echoes"):
        yield from (_echo(account, echo) for echo in objects_at(value, "message_echoes"))


def _message(account: str, people: People, message: dict[str, Any]) -> Event:
    contact = _contact_of(people, message)
    sender = text_at(message, "from") or _bsuid(message, contact) or text_at(contact, "wa_id")
    group, sent_at = text_at(message, "group_id"), instant(message.get("timestamp"))
    content = content_of(message)
    is_whole = bool(sender) and (sent_at is not None or message.get("timestamp") in (None, ""))
    return Event(
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
    return extras(
        profileName=text_at(contact, "profile", "name"),
        username=text_at(contact, "profile", "username"),
        senderBsuid=_bsuid(message, contact),
        groupId=text_at(message, "group_id"),
        forwarded=at(context, "forwarded") is True or at(context, "frequently_forwarded") is True,
        quotedSender=text_at(context, "from"),
        quotedProduct=text_at(context, "referred_product", "product_retailer_id"),
        referral=texts_at(message.get("referral"), REFERRAL),
    )


def _status(account: str, status: dict[str, Any]) -> Event:
    return Event(
        kind="status",
        account=account,
        conversation=text_at(status, "recipient_id") or text_at(status, "recipient_user_id"),
        id=text_at(status, "id"),
        sent_at=instant(status.get("timestamp")),
        is_group=status.get("recipient_type") == "group",
        metadata=extras(
            status=text_at(status, "status"),
            replyId=text_at(status, "biz_opaque_callback_data"),
            errors=[_error(error) for error in objects_at(status, "errors")[:3]],
        ),
    )


def _echo(account: str, echo: dict[str, Any]) -> Event:
    content = content_of(echo)
    return Event(
        kind="echo",
        account=account,
        conversation=text_at(echo, "to") or text_at(echo, "to_user_id"),
        sender=text_at(echo, "from"),
        id=text_at(echo, "id"),
        text=content.text,
        attachments=content.attachments,
        sent_at=instant(echo.get("timestamp")),
    )


def _error(error: dict[str, Any]) -> dict[str, Any]:
    details = text_at(error, "error_data", "details")
    return extras(code=number_at(error, "code"), title=text_at(error, "title"), details=details)


def content_of(message: dict[str, Any]) -> Content:
    """What a message holds, by its type; `unsupported` for a type we do not know, or one without its object."""
    kind = _type_of(message)
    held = message.get(kind)
    if kind not in READERS or not isinstance(held, list if kind == "contacts" else dict):
        return msgspec.structs.replace(UNSUPPORTED, metadata=_reasons(message))
    return READERS[kind](held)


def _type_of(message: dict[str, Any]) -> str:
    return text_at(message, "type") or next((name for name in READERS if name in message), "")


def _reasons(message: dict[str, Any]) -> dict[str, Any]:
    return extras(
        type=text_at(message, "unsupported", "type") or text_at(message, "type"),
        errors=[_error(error) for error in objects_at(message, "errors")[:3]],
    )


def _text(held: Any) -> Content:
    return Content(text=text_at(held, "body")) if "body" in held else UNSUPPORTED


def _media(kind: str) -> Callable[[Any], Content]:
    def read(held: Any) -> Content:
        caption = text_at(held, "caption")
        attachment = Attachment(
            kind="voice" if held.get("voice") is True else kind,
            url=text_at(held, "url") or None,
            id=text_at(held, "id") or None,
            mime_type=text_at(held, "mime_type") or None,
            name=text_at(held, "filename") or None,
            caption=caption or None,
            metadata=extras(sha256=text_at(held, "sha256"), animated=held.get("animated") is True),
        )
        return Content(text=caption, attachments=(attachment,))

    return read


def _location(held: Any) -> Content:
    place = Attachment(
        kind="location",
        name=text_at(held, "name") or None,
        caption=text_at(held, "address") or None,
        metadata=extras(
            latitude=number_at(held, "latitude"), longitude=number_at(held, "longitude"), page=text_at(held, "url")
        ),
    )
    return Content(attachments=(place,))


def _contacts(held: Any) -> Content:
    people = [contact for contact in held if isinstance(contact, dict)]
    return Content(attachments=tuple(map(_contact_card, people[:MOST_CONTACTS])))


def _contact_card(contact: dict[str, Any]) -> Attachment:
    phones = [number for p in objects_at(contact, "phones") if (number := text_at(p, "phone") or text_at(p, "wa_id"))]
    emails = [address for e in objects_at(contact, "emails") if (address := text_at(e, "email"))]
    name = text_at(contact, "name", "formatted_name") or text_at(contact, "name", "first_name")
    return Attachment(
        kind="contact",
        name=name or None,
        caption=", ".join([*phones, *emails]) or None,
        metadata=extras(phones=phones, emails=emails, organization=text_at(contact, "org", "company")),
    )


def _button(held: Any) -> Content:
    payload = text_at(held, "payload")
    return Content(text=text_at(held, "text") or payload, metadata=extras(payload=payload))


def _interactive(held: Any) -> Content:
    for name in INTERACTIVE:
        if isinstance(chosen := at(held, name), dict):
            payload, description = text_at(chosen, "id"), text_at(chosen, "description")
            text = text_at(chosen, "title") or payload
            return Content(text=text, metadata=extras(payload=payload, description=description))
    if isinstance(form := at(held, "nfm_reply"), dict):
        payload = text_at(form, "response_json")
        return Content(
            text=text_at(form, "body") or payload, metadata=extras(payload=payload, flow=text_at(form, "name"))
        )
    return UNSUPPORTED


def _order(held: Any) -> Content:
    items = objects_at(held, "product_items")[:MOST_ITEMS]
    order = Attachment(
        kind="order",
        caption="; ".join(map(_order_line, items)) or None,
        metadata=extras(catalogId=text_at(held, "catalog_id")),
    )
    return Content(text=text_at(held, "text"), attachments=(order,))


def _order_line(item: dict[str, Any]) -> str:
    """`3 x HAMBURGER at 30 ILS`"""
    amount, price = number_at(item, "quantity") or 1, number_at(item, "item_price")
    line = f"{amount:g} x {text_at(item, 'product_retailer_id')}"
    return line if price is None else f"{line} at {price:.15g} {text_at(item, 'currency')}".strip()


def _reaction(held: Any) -> Content:
    emoji = text_at(held, "emoji")
    return Content("reaction", target=text_at(held, "message_id"), metadata={"emoji": emoji, "removed": not emoji})


def _edit(held: Any) -> Content:
    message, target = at(held, "message"), text_at(held, "original_message_id")
    # An edit of an edit is nothing that WhatsApp sends, and could be nested without end.
    if not isinstance(message, dict) or _type_of(message) == "edit" or not target:
        return UNSUPPORTED
    now = content_of(message)
    return msgspec.structs.replace(now, kind="edit", target=target) if now.kind == "message" else UNSUPPORTED


def _revoke(held: Any) -> Content:
    target = text_at(held, "original_message_id")
    return Content("delete", target=target) if target else UNSUPPORTED


def _system(held: Any) -> Content:
    names = ("type", "wa_id", "new_wa_id", "user_id")
    return Content("system", text=text_at(held, "body"), metadata=dict(texts_at(held, names)))


READERS: dict[str, Callable[[Any], Content]] = {
    "text": _text,
    **{kind: _media(kind) for kind in ("image", "video", "document", "sticker", "audio", "voice")},
    "location": _location,
    "contacts": _contacts,
    "button": _button,
    "interactive": _interactive,
    "order": _order,
    "reaction": _reaction,
    "edit": _edit,
    "revoke": _revoke,
    "system": _system,
}
