"""The values that travel: what a person sent, and what the agent is handed."""

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

UNREADABLE = "turntake.unreadable"
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
    """One thing a person sent. `seq` and `received_at` are given by the store.

    With `amends`, the id of another message, it is an amendment: it changes that one or, as a deletion, takes it away.
    """

    id: str
    text: str = ""
    sender: str = ""
    sent_at: int | None = None
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    metadata: dict[str, Any] = {}
    seq: int = 0
    received_at: int = 0
    amends: str | None = None
    is_deletion: bool = False

    @property
    def is_amendment(self) -> bool:
        return self.amends is not None

    @property
    def is_unreadable(self) -> bool:
        """Whether it stands for bytes that no release of ours can read: see `unreadable`."""
        return UNREADABLE in self.metadata

    @property
    def is_blank(self) -> bool:
        """Nothing to read and nothing to look at: such a message is never buffered. An amendment says something."""
        if self.is_amendment or self.text[:1].isalnum():
            return False
        return not self.attachments and all(c.isspace() or c in _INVISIBLE for c in self.text)


def unreadable(raw: bytes, seq: int) -> Message:
    """Stands for a stored message that cannot be read, so that its turn ends and its neighbours are not harmed.

    The bytes are shown as they are, in base64; they also stay in the store, for whoever can repair them.
    """
    return Message(f"unreadable-{seq}", metadata={UNREADABLE: b64encode(raw).decode()})


def as_said(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages as their senders left them: each changed by the amendments among them, which are not shown.

    The latest edit of a message stands, by number, and a deletion for good: an edit that comes after it is only late.
    Nobody amends what somebody else said, where both are known.
    """
    everything = tuple(messages)
    amendments = [message for message in everything if message.amends is not None]
    if not amendments:
        return everything
    by_target: dict[str | None, list[Message]] = {}
    for amendment in sorted(amendments, key=lambda amendment: amendment.seq):
        by_target.setdefault(amendment.amends, []).append(amendment)
    left = (_as_left(message, by_target.get(message.id, ())) for message in everything if message.amends is None)
    return tuple(message for message in left if message is not None)


def _as_left(message: Message, amendments: Iterable[Message]) -> Message | None:
    """None if it was deleted, or nothing is left to read or to look at."""
    own = [each for each in amendments if _is_by_one(message, each)]
    if not own:
        return message
    left = replace(message, text=own[-1].text)
    for amendment in own:
        if amendment.attachments:
            left = replace(left, attachments=amendment.attachments)
    return None if any(each.is_deletion for each in own) or left.is_blank else left


def _is_by_one(message: Message, amendment: Message) -> bool:
    return not message.sender or not amendment.sender or message.sender == amendment.sender


def in_order(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages as the person sent them: by the platform's time where every one has it, else by arrival."""
    if all(message.sent_at is not None for message in messages):
        return tuple(sorted(messages, key=lambda message: (message.sent_at, message.seq)))
    return tuple(sorted(messages, key=lambda message: (message.received_at, message.seq)))


def joined(messages: tuple[Message, ...]) -> str:
    """What the person said, a line a message; messages without words leave no empty line."""
    return "\n".join(message.text for message in messages if message.text)
