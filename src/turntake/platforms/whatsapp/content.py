"""What one WhatsApp message holds, by its type. Pure."""

from collections.abc import Callable
from typing import Any

import msgspec

from turntake.platforms.loose_json import at, objects_at, text_at
from turntake.platforms.meta.webhooks import extras, number_at, texts_at
from turntake.rules.message import Attachment

INTERACTIVE = ("button_reply", "list_reply")
MOST_CONTACTS = 20
MOST_ITEMS = 50


class Content(msgspec.Struct, frozen=True):
    """What one message holds, whoever sent it."""

    kind: str = "message"
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    target: str = ""
    metadata: dict[str, Any] = {}


UNSUPPORTED = Content("unsupported")


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
        errors=[error_of(error) for error in objects_at(message, "errors")[:3]],
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


def error_of(error: dict[str, Any]) -> dict[str, Any]:
    details = text_at(error, "error_data", "details")
    return extras(code=number_at(error, "code"), title=text_at(error, "title"), details=details)
