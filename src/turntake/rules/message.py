"""The values that travel: what a person sent, and what the agent is handed."""

from typing import Any

import msgspec

_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A file, voice note, picture or place, by reference: turntake never carries the bytes."""

    kind: str
    url: str | None = None
    id: str | None = None
    mime_type: str | None = None
    name: str | None = None
    caption: str | None = None
    metadata: dict[str, Any] = {}


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing a person sent. `seq` and `received_at` are given by the store."""

    id: str
    text: str = ""
    sender: str = ""
    sent_at: int | None = None
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    metadata: dict[str, Any] = {}
    seq: int = 0
    received_at: int = 0

    @property
    def is_blank(self) -> bool:
        """Nothing to read and nothing to look at: such a message is never buffered."""
        if self.text[:1].isalnum():
            return False
        return not self.attachments and all(c.isspace() or c in _INVISIBLE for c in self.text)


def in_order(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages as the person sent them: by the platform's time where every one has it, else by arrival."""
    if all(message.sent_at is not None for message in messages):
        return tuple(sorted(messages, key=lambda message: (message.sent_at, message.seq)))
    return tuple(sorted(messages, key=lambda message: (message.received_at, message.seq)))


def joined(messages: tuple[Message, ...]) -> str:
    """What the person said, a line a message; messages without words leave no empty line."""
    return "\n".join(message.text for message in messages if message.text)
