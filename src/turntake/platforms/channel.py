"""The port: how one platform's webhooks become events.

Everything here is pure: no network, no clock, no state. `accept/webhooks.py` carries it out.
A platform's other direction, replies, is the port in `deliver/sender.py`; both get the same options.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from turntake.rules.message import Attachment

SAID = frozenset({"message", "postback"})
"""The kinds of event that are a person's words, and wait in the buffer. Others change it, or mean nothing to it."""


class Option(NamedTuple):
    """Something a channel must or may be told: `app_secret` of `whatsapp` is TURNTAKE_WHATSAPP_APP_SECRET.

    `use` says what is missing without it: "verify" (every webhook is refused), "reply" (answers stay here),
    or "" (it has a default that does). Several secrets at once, for a rotation, are separated by commas.
    """

    name: str
    sentence: str
    use: str = ""
    is_secret: bool = True
    default: str = ""


class Request(msgspec.Struct, frozen=True):
    """One HTTP request as it came. `url` is the public one, as the platform calls it; header names are lower case."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def query(self) -> dict[str, str]:
        """Its query's parameters; of one given twice, the last."""
        try:
            return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))
        except ValueError:
            return {}


class WebhookAnswer(msgspec.Struct, frozen=True):
    """What the platform wants to hear once everything is stored."""

    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


class ChatEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened in a chat.

    `kind` is "message" or "postback" (a pressed button) for what a person said; "edit" and "delete" change the
    message `target`; "typing" (for `ttl_ms`) and "stopped" are signs of life; every other kind ("status", "echo",
    "reaction", "system", "unsupported" …) is acknowledged and means nothing.
    `account` is our side's id, `conversation` the chat's, as the platform writes them.
    `id` is the platform's own; it may be empty, and several kinds of event may share it.
    """

    kind: str
    account: str = ""
    conversation: str = ""
    sender: str = ""
    id: str = ""
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    sent_at: int | None = None
    reply_to: str | None = None
    thread: str = ""
    is_group: bool = False
    target: str = ""
    ttl_ms: int = 0
    metadata: dict[str, Any] = {}

    @property
    def message_id(self) -> str:
        """What a redelivery is known by: the platform's id, with the kind where kinds share ids."""
        # A message that is edited twice is changed twice, where its edits have no ids of their own.
        said = self.id if self.id and self.id != self.target else self._digest()
        if self.kind == "message":
            return said
        return f"{self.kind}:{self.target}:{said}" if self.target else f"{self.kind}:{said}"

    def _digest(self) -> str:
        said = (self.sender, self.sent_at, self.text, self.attachments, self.metadata)
        return hashlib.blake2s(msgspec.json.encode(said, order="deterministic"), digest_size=16).hexdigest()


class Channel(ABC):
    """One account at one platform. Unset secrets verify nothing."""

    options: ClassVar[Sequence[Option]] = ()

    def __init__(self, given: Mapping[str, str]) -> None:
        """`given` are the options that are set, by name. A value that cannot be right raises ConfigurationError."""
        self._values = {option.name: given.get(option.name) or option.default for option in self.options}

    @abstractmethod
    def verify(self, request: Request, now: int) -> None:
        """Returns if the platform sent this request, the whole of it, and not too long before `now`; else Forged.

        Never anything else, whatever the request holds.
        """

    @abstractmethod
    def events_in(self, request: Request) -> list[ChatEvent]:
        """What a verified request says, in its order; [] for a handshake. Unreadable if it is no such request.

        What is authentic but strange, new or broken in part becomes an event of a kind that is ignored.
        """

    def answer(self, request: Request) -> WebhookAnswer:
        """What a verified request is answered once its events are stored."""
        return WebhookAnswer()

    @abstractmethod
    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        """A request as the platform would send it for this message, signed with our own secret."""


def keys_in(secret: str) -> list[bytes]:
    """The secrets in an option, which may be several during a rotation."""
    return [part.strip().encode("utf-8", "surrogateescape") for part in secret.split(",") if part.strip()]
