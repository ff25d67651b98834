"""Replies through WhatsApp's Cloud API. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from turntake.errors import GiveUp
from turntake.platforms import address
from turntake.platforms.meta.replies import MetaReplies
from turntake.platforms.replies import ApiCall, Recipient, Unit, path_id

MESSAGE_ID = "wamid."
"""How the ids of WhatsApp's messages begin; those of other events are ours."""
BUSINESS_SCOPED = re.compile(r"[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128}")


class WhatsAppReplies(MetaReplies):
    """One business's numbers."""

    title = "WhatsApp"
    longest = 4096
    # Meta does not say in what it counts; by UTF-16 nothing is ever too long.
    unit: Unit = "utf-16"
    # An indicator is shown for 25 seconds, so this renews it in time.
    typing_ms = 20_000

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        body: dict[str, Any] = {
            "messaging_product": "whatsapp",
            **_recipient(to),
            "type": "text",
            "text": {"body": text, "preview_url": False},
            "biz_opaque_callback_data": reply_id,
        }
        if to.reply_to.startswith(MESSAGE_ID):
            body["context"] = {"message_id": to.reply_to}
        return self._call(self._path(to), body)

    def typing_call(self, to: Recipient) -> ApiCall | None:
        """Shown for 25 s or until we answer; it also marks the messages as read. It cannot be taken back."""
        last = next((message.id for message in reversed(to.messages) if message.id.startswith(MESSAGE_ID)), "")
        if not last or not self._number_id(to):
            return None
        indicator = {"status": "read", "message_id": last, "typing_indicator": {"type": "text"}}
        return self._call(self._path(to), {"messaging_product": "whatsapp", **indicator})

    def _id_in(self, payload: Mapping[str, Any]) -> str:
        match payload.get("messages"):
            case [{"id": str(id)}, *_]:
                return id
        return ""

    def _path(self, to: Recipient) -> str:
        number_id = self._number_id(to)
        if not number_id:
            raise GiveUp("WhatsApp did not say which number was written to: set TURNTAKE_WHATSAPP_PHONE_NUMBER_ID.")
        return f"{path_id(number_id, 'The phone number ID')}/messages"

    def _number_id(self, to: Recipient) -> str:
        return to.account or self._values.get("phone_number_id", "")


def _recipient(to: Recipient) -> dict[str, str]:
    """A group, a person by phone number, or one who shows none by the id they have with this business."""
    chat = to.key.conversation
    if any(address.read_group(message.metadata) == chat for message in to.messages):
        return {"recipient_type": "group", "to": chat}
    return {"recipient_type": "individual", "recipient" if BUSINESS_SCOPED.fullmatch(chat) else "to": chat}
