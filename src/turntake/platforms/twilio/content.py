"""What one of Twilio's webhooks says, parameter by parameter. Pure."""

import base64
import binascii
import math
import re
from collections.abc import Iterable, Mapping

from turntake.platforms.channel import ChatEvent, ReplyStatus, ReplyStatusName
from turntake.platforms.loose_json import present
from turntake.platforms.twilio.replies import ADVICE
from turntake.rules.message import Attachment

INBOUND = frozenset({"", "received", "receiving"})
SHORTEST_BASE64 = 60
"""In characters. A shorter text may well be an ordinary word, and only long SMS come like this."""
SIDS = ("MessageSid", "SmsSid", "SmsMessageSid")
"""The names of the message's id; all that are there have the same value."""
CHOSEN = ("ButtonText", "ListTitle", "ButtonPayload", "ListId", "InteractiveData")
"""What was pressed, chosen or filled in on WhatsApp, where `Body` is empty: its words, else its id or its data."""
STATUSES: Mapping[str, ReplyStatusName] = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "undelivered": "failed",
    "failed": "failed",
    "canceled": "failed",
}
"""Twilio's words for what became of a message of ours. The others (queued, sending …) say that it is on its way."""

# What an agent may want to know, besides what has a field of its own.
METADATA = {
    "ProfileName": "senderName",
    "ExternalUserId": "externalUserId",
    "MessageType": "messageType",
    "MessagingServiceSid": "messagingServiceSid",
    "ButtonText": "buttonText",
    "ListTitle": "listTitle",
    "ListId": "payload",
    "ButtonPayload": "payload",
    "InteractiveData": "interactiveData",
    "OriginalRepliedMessageSender": "repliedSender",
    "ReferralSourceUrl": "referralUrl",
    "ReferralHeadline": "referralHeadline",
}
FORWARDED = {"Forwarded": "forwarded", "FrequentlyForwarded": "frequentlyForwarded"}

MESSAGE_SID = re.compile(r"(SM|MM)[0-9a-f]{32}")
_MEDIA = re.compile(r"MediaUrl(\d{1,3})")

Fields = Mapping[str, str]


def event_of(fields: Fields, reply_id: str) -> ChatEvent:
    """The one event in a webhook; `reply_id` is the reply that it is about, if the address says so.

    A message counts only with an id as Twilio writes it. The signature has no border between a parameter's name and
    its value: whoever has one signed webhook could move the borders, and repeat it under ids of their own.
    """
    sid, state = _sid(fields), fields.get("MessageStatus") or fields.get("SmsStatus") or ""
    sender = fields.get("From") or fields.get("ExternalUserId") or ""
    if state.lower() not in INBOUND:
        return _status(fields, sid, state, reply_id)
    if not sender or not sid:
        return ChatEvent(kind="unsupported", id=sid)
    body = fields.get("Body", "")
    return ChatEvent(
        kind="opt_out" if fields.get("OptOutType") else "message",
        account=fields.get("To", ""),
        conversation=sender,
        sender=sender,
        id=sid,
        text=body or next((chosen for name in CHOSEN if (chosen := fields.get(name))), ""),
        attachments=(*_media(fields), *_location(fields)),
        reply_to=fields.get("OriginalRepliedMessageSid") or None,
        metadata=_metadata(fields) | _decoded(body),
    )


def _sid(fields: Fields) -> str:
    """The message's id; "" if there is none, if it is not one of Twilio's, or if several contradict each other."""
    named = {fields[name] for name in SIDS if fields.get(name)}
    sid = named.pop() if len(named) == 1 else ""
    return sid if MESSAGE_SID.fullmatch(sid) else ""


def _status(fields: Fields, sid: str, state: str, reply_id: str) -> ChatEvent:
    """What became of a message of ours: here we are `From`, and the person `To`."""
    code, name = fields.get("ErrorCode", ""), STATUSES.get(state.lower())
    return ChatEvent(
        kind="status",
        account=fields.get("From", ""),
        conversation=fields.get("To", ""),
        id=sid,
        metadata={"status": state} | present(error=code),
        reply=ReplyStatus(reply_id, name, _failure(state, code) if name == "failed" else "") if name else None,
    )


def _failure(state: str, code: str) -> str:
    number = int(code) if re.fullmatch(r"[0-9]{1,9}", code) else 0
    text = f"Twilio reports that the reply is {state}" + (f", error {number}" if number else "")
    return f"{text} ({ADVICE[number]})." if number in ADVICE else f"{text}."


def _media(fields: Fields) -> Iterable[Attachment]:
    """By the URLs that are there; NumMedia is missing at times."""
    numbers = sorted(int(match[1]) for match in map(_MEDIA.fullmatch, fields) if match)
    for number in dict.fromkeys(numbers):
        if url := fields.get(f"MediaUrl{number}"):
            content_type = fields.get(f"MediaContentType{number}") or None
            yield Attachment(_kind(content_type), url=url, mime_type=content_type)


def _kind(content_type: str | None) -> str:
    if not content_type:
        return "unknown"
    family, _, form = content_type.partition(";")[0].strip().lower().partition("/")
    if form in ("vcard", "x-vcard"):
        return "contact"
    return family if family in ("image", "audio", "video") else "document"


def _location(fields: Fields) -> Iterable[Attachment]:
    try:
        degrees = {"latitude": float(fields["Latitude"]), "longitude": float(fields["Longitude"])}
    except (KeyError, ValueError):
        return
    if all(map(math.isfinite, degrees.values())):
        address = present(address=fields.get("Address"))
        yield Attachment("location", name=fields.get("Label") or None, metadata={**degrees, **address})


def _metadata(fields: Fields) -> dict[str, str | bool]:
    facts: dict[str, str | bool] = {name: fields[field] for field, name in METADATA.items() if fields.get(field)}
    return facts | {name: True for field, name in FORWARDED.items() if fields.get(field) == "true"}


def _decoded(body: str) -> dict[str, str]:
    """What a text says if it is base64, as long SMS are at times. The text itself stays: it may as well be a key."""
    encoded = "".join(body.split())
    if len(encoded) < SHORTEST_BASE64 or len(encoded) % 4 or " " in body.strip():
        return {}
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return {}
    # It is text if half of it is ASCII and nothing a control character. A part may end in the middle of a character.
    has_controls = any(byte < 32 and byte not in b"\t\n\r" for byte in raw)
    is_text = not has_controls and sum(byte < 128 for byte in raw) * 2 >= len(raw)
    return {"decodedText": raw.decode("utf-8", "ignore")} if is_text else {}
