"""The port: one chat platform. Its webhooks become events, its credentials are checked, its replies are named here.

A platform is one folder and one entry point in the group `turntake.channels`, which names its subclass of `Channel`.
Everything here is pure: no network, no clock, no state. `accept/webhooks.py` receives, `deliver/replies.py` sends,
`turntake doctor` asks.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from turntake.errors import ConfigurationError
from turntake.platforms.check import WebhookCheck, WhoAmI
from turntake.platforms.replies import ReplyApi
from turntake.platforms.text_limit import NO_LIMIT, TextLimit
from turntake.rules.message import Attachment

SAID = frozenset({"message", "postback"})
"""The kinds of event that are a person's words, and wait in the buffer. Others change it, or mean nothing to it."""

Use = Literal["", "verify", "reply", "listen"]
ReplyStatusName = Literal["sent", "delivered", "read", "failed"]


class Option(NamedTuple):
    """One thing that an account can be configured with: `app_secret` of `whatsapp` is TURNTAKE_WHATSAPP_APP_SECRET.

    `use` says what does not work without it: "verify" (every webhook is refused), "reply" (answers stay here),
    "listen" (the listener is not started), or "" (nothing: it is optional, or has a default).
    Several secrets at once, for a rotation, are separated by commas.
    One that `is_shared` is set once for all accounts of the channel; named accounts have none of their own.
    One that `is_for_handshake` checks who registers our address, and not who sends messages there.
    One that `is_chosen` is a secret that the operator makes up, and not one that the platform gives out.
    """

    name: str
    sentence: str
    use: Use = ""
    is_secret: bool = True
    default: str = ""
    is_shared: bool = False
    is_for_handshake: bool = False
    is_chosen: bool = False


class Needs(NamedTuple):
    """What the platform needs of the address at which it calls us; `turntake doctor` and `serve` say what is missing.

    Without `public_url`, nobody but the operator's own programs calls the channel, and any address will do.
    """

    public_url: bool = True
    signed_url: bool = False
    """The signature covers the address, so webhooks are refused unless the public URL is set, to the letter."""
    https: bool = False
    """It refuses to call any other address. Without this, http is only bad advice."""
    ports: tuple[int, ...] = ()
    """The only ports it calls; empty if it calls any."""


class CallbackOptions(NamedTuple):
    """The names of two options: the address that answers are posted to, and the secret that signs them."""

    url: str
    secret: str


class Request(msgspec.Struct, frozen=True):
    """One HTTP request as it came. `url` is the public one, as the platform calls it; header names are lower case."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def query(self) -> dict[str, str]:
        """The parameters of its query; of one that is there twice, the last."""
        try:
            return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))
        except ValueError:
            return {}


class WebhookAnswer(msgspec.Struct, frozen=True):
    """What the platform is told once everything is stored."""

    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


class ReplyStatus(msgspec.Struct, frozen=True):
    """What became of a reply of ours, as the platform reports it some time after it took the reply.

    `reply_id` is the one that `ReplyApi.reply_call` was given; "" if the platform does not say which reply it was.
    """

    reply_id: str
    status: ReplyStatusName
    error: str = ""


class ChatEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened in a chat.

    `kind` is "message" or "postback" (a pressed button) for what a person said; "edit" and "delete" change the
    message `target`; "typing" (for `ttl_ms`) and "stopped" tell whether the person is composing; "status" says in
    `reply` what became of a reply of ours; every other kind ("echo", "reaction", "system", "unsupported" …) is
    acknowledged and means nothing.
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
    reply: ReplyStatus | None = None

    @property
    def message_id(self) -> str:
        """What a redelivery is known by: the platform's id, with the kind where kinds share ids."""
        # Where edits have no ids of their own, only their content tells the second edit of a message from the first.
        id = self.id if self.id and self.id != self.target else self._digest()
        if self.kind == "message":
            return id
        return f"{self.kind}:{self.target}:{id}" if self.target else f"{self.kind}:{id}"

    def _digest(self) -> str:
        content = (self.sender, self.sent_at, self.text, self.attachments, self.metadata)
        return hashlib.blake2s(msgspec.json.encode(content, order="deterministic"), digest_size=16).hexdigest()


class Delivery(msgspec.Struct, frozen=True):
    """One webhook, read: its events in order, and what the platform is told once they are stored."""

    events: tuple[ChatEvent, ...] = ()
    answer: WebhookAnswer = WebhookAnswer()


class Channel(ABC):
    """One account at one platform. As long as its secrets are not set, it believes nobody.

    Only `verify`, `read` and `sample` must be written. The attributes say what else the platform has.
    """

    title: ClassVar[str] = ""
    """The platform's name as people write it; by default, the name it is registered under."""
    options: ClassVar[Sequence[Option]] = ()
    """All options of an account: those of webhooks, replies and listener."""
    replies: ClassVar[type[ReplyApi] | None] = None
    """How answers are sent. Without it, and without `callback`, they stay with their turns."""
    callback: ClassVar[CallbackOptions | None] = None
    """Where answers are posted, for a channel that has no platform with an API behind it."""
    listener: ClassVar[str] = ""
    """The listener as `package.module:Class`, if there is one. It is imported only for an account that listens, since
    it may bring a library that is slow to import or not installed."""
    listener_receives_messages: ClassVar[bool] = False
    """Whether the listener hears messages too, so that an account works without webhooks."""
    text_limit: ClassVar[TextLimit] = NO_LIMIT
    """The longest text that people can send here. One of that length is probably cut, and its rest is waited for."""
    needs: ClassVar[Needs] = Needs()
    takes_get: ClassVar[bool] = True
    """Whether the platform also calls by GET, as some do for a handshake. Without it, a GET is refused unread."""
    signed_by: ClassVar[frozenset[str]] = frozenset()
    """Headers, in lower case, of which every POST of the platform carries at least one. One without any of them is
    refused before its body is read. Empty: whether it is signed shows only with the body."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` are those of the options that are set, by name. One that cannot be right: ConfigurationError."""
        self._values = {option.name: values.get(option.name) or option.default for option in self.options}

    @cached_property
    def has_secret(self) -> bool:
        """Whether anything is set that webhooks are checked by: then others are meant to reach it."""
        return any(self._values[option.name].strip() not in ("", option.default) for option in self._checking())

    @cached_property
    def lacks_secrets(self) -> bool:
        """Whether it needs secrets to check webhooks, and has none of them."""
        return bool(self._checking()) and not self.has_secret

    def _checking(self) -> list[Option]:
        return [option for option in self.options if option.use == "verify"]

    @abstractmethod
    def verify(self, request: Request, now: int) -> None:
        """Returns if the platform sent this request, the whole of it, and not too long before `now`.

        Otherwise raises Forged. It raises nothing else, whatever the request holds.
        """

    @abstractmethod
    def read(self, request: Request) -> Delivery:
        """What a verified request says, and its answer; no events for a handshake.

        Raises Unreadable if it is not a request of this platform, and nothing else. What is authentic but strange,
        new or broken in part becomes an event of a kind that is ignored.
        """

    @abstractmethod
    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        """A request as the platform would send it for this message, signed with our own secret."""

    def sample_id(self, unique: str) -> str:
        """An id as the platform gives them to messages, made of `unique`."""
        return unique

    def whoami(self) -> WhoAmI | None:
        """A harmless question to the platform that shows whether our credentials are right, if there is one."""
        return None

    def webhook_check(self, url: str, is_public: bool) -> WebhookCheck | None:
        """The question which address the platform calls, where it can be asked; `url` is the right answer.

        If it is not `is_public`, nobody knows the right answer, and only having no address at all is wrong.
        """
        return None

    def reply_api(self) -> ReplyApi:
        """How answers of this account are sent. Raises ConfigurationError if the channel has no `replies`."""
        if self.replies is None:
            raise ConfigurationError(f"{type(self).__name__} has no API to reply through; its answers stay here.")
        return self.replies(self._values)


def keys_in(secret: str) -> list[bytes]:
    """The secrets in an option, which may be several during a rotation."""
    return [part.strip().encode("utf-8", "surrogateescape") for part in secret.split(",") if part.strip()]
