"""What one WhatsApp message holds, by its type. Pure."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from turntake.platforms.loose_json import at, named_texts, number_at, objects_at, present, text_at
from turntake.platforms.meta.content import Content
from turntake.rules.message import Attachment

INTERACTIVE = ("button_reply", "list_reply")
# More than people send at once, and few enough that no message outgrows a store.
MOST_CONTACTS = 20
MOST_ITEMS = 50
MOST_ERRORS = 3

UNSUPPORTED = Content("unsupported")


def content_of(message: dict[str, Any]) -> Content:
    """What a message holds, by its type; `unsupported` for a type we do not know, or one without its object."""
    kind = _type_of(message)
    part = message.get(kind)
    if kind not in READERS or not isinstance(part, list if kind == "contacts" else dict):
        return replace(UNSUPPORTED, metadata=_reasons(message))
    return READERS[kind](part)


def _type_of(message: dict[str, Any]) -> str:
    return text_at(message, "type") or next((name for name in READERS if name in message), "")


def _reasons(message: dict[str, Any]) -> dict[str, Any]:
    return present(
        type=text_at(message, "unsupported", "type") or text_at(message, "type"),
        errors=[error_of(error) for error in objects_at(message, "errors")[:MOST_ERRORS]],
    )


def _text(part: Any) -> Content:
    return Content(text=text_at(part, "body")) if "body" in part else UNSUPPORTED


def _media(kind: str) -> Callable[[Any], Content]:
    def read(part: Any) -> Content:
        caption = text_at(part, "caption")
        attachment = Attachment(
            kind="voice" if part.get("voice") is True else kind,
            url=text_at(part, "url") or None,
            id=text_at(part, "id") or None,
            mime_type=text_at(part, "mime_type") or None,
            name=text_at(part, "filename") or None,
            caption=caption or None,
            metadata=present(sha256=text_at(part, "sha256"), animated=part.get("animated") is True),
        )
        return Content(text=caption, attachments=(attachment,))

    return read


def _location(part: Any) -> Content:
    location = Attachment(
        kind="location",
        name=text_at(part, "name") or None,
        caption=text_at(part, "address") or None,
        metadata=present(
            latitude=number_at(part, "latitude"), longitude=number_at(part, "longitude"), page=text_at(part, "url")
        ),
    )
    return Content(attachments=(location,))


def _contacts(part: Any) -> Content:
    people = [contact for contact in part if isinstance(contact, dict)]
    return Content(attachments=tuple(map(_contact_card, people[:MOST_CONTACTS])))


def _contact_card(contact: dict[str, Any]) -> Attachment:
    phones = [number for p in objects_at(contact, "phones") if (number := text_at(p, "phone") or text_at(p, "wa_id"))]
    emails = [address for e in objects_at(contact, "emails") if (address := text_at(e, "email"))]
    name = text_at(contact, "name", "formatted_name") or text_at(contact, "name", "first_name")
    return Attachment(
        kind="contact",
        name=name or None,
        caption=", ".join([*phones, *emails]) or None,
        metadata=present(phones=phones, emails=emails, organization=text_at(contact, "org", "company")),
    )


def _button(part: Any) -> Content:
    payload = text_at(part, "payload")
    return Content(text=text_at(part, "text") or payload, metadata=present(payload=payload))


def _interactive(part: Any) -> Content:
    for name in INTERACTIVE:
        if isinstance(chosen := at(part, name), dict):
            payload, description = text_at(chosen, "id"), text_at(chosen, "description")
            text = text_at(chosen, "title") or payload
            return Content(text=text, metadata=present(payload=payload, description=description))
    if isinstance(form := at(part, "nfm_reply"), dict):
        payload = text_at(form, "response_json")
        return Content(
            text=text_at(form, "body") or payload, metadata=present(payload=payload, flow=text_at(form, "name"))
        )
    return UNSUPPORTED


def _order(part: Any) -> Content:
    items = objects_at(part, "product_items")[:MOST_ITEMS]
    order = Attachment(
        kind="order",
        caption="; ".join(map(_order_line, items)) or None,
        metadata=present(catalogId=text_at(part, "catalog_id")),
    )
    return Content(text=text_at(part, "text"), attachments=(order,))


def _order_line(item: dict[str, Any]) -> str:
    """`3 x HAMBURGER at 30 ILS`"""
    amount, price = number_at(item, "quantity") or 1, number_at(item, "item_price")
    line = f"{amount:g} x {text_at(item, 'product_retailer_id')}"
    return line if price is None else f"{line} at {price:.15g} {text_at(item, 'currency')}".strip()


def _reaction(part: Any) -> Content:
    emoji = text_at(part, "emoji")
    return Content("reaction", target=text_at(part, "message_id"), metadata={"emoji": emoji, "removed": not emoji})


def _edit(part: Any) -> Content:
    message, target = at(part, "message"), text_at(part, "original_message_id")
    # An edit of an edit is nothing that WhatsApp sends, and could be nested without end.
    if not isinstance(message, dict) or _type_of(message) == "edit" or not target:
        return UNSUPPORTED
    new = content_of(message)
    return replace(new, kind="edit", target=target) if new.kind == "message" else UNSUPPORTED


def _revoke(part: Any) -> Content:
    target = text_at(part, "original_message_id")
    return Content("delete", target=target) if target else UNSUPPORTED


def _system(part: Any) -> Content:
    names = ("type", "wa_id", "new_wa_id", "user_id")
    return Content("system", text=text_at(part, "body"), metadata=dict(named_texts(part, names)))


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
    return present(code=number_at(error, "code"), title=text_at(error, "title"), details=details)
