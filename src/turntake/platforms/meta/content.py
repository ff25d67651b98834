"""What one message of WhatsApp, Messenger or Instagram holds, whoever sent it."""

from typing import Any

import msgspec

from turntake.rules.message import Attachment


class Content(msgspec.Struct, frozen=True):
    """The part of an event that depends on the type of the message; its fields are those of `ChatEvent`."""

    kind: str = "message"
    id: str = ""
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    target: str = ""
    metadata: dict[str, Any] = {}
