"""The port: how a reply is put to one platform's API.

Pure: it writes calls and reads responses. `deliver/replies.py` makes the calls, splits long replies and tries again.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

import msgspec

from turntake.errors import GiveUp, RetryLater
from turntake.platforms import address
from turntake.retry_after import retry_after_ms
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message

Unit = Literal["characters", "utf-16", "bytes"]

_PATH_ID = re.compile(r"[0-9A-Za-z_-]+")


class ApiCall(msgspec.Struct, frozen=True):
    """One HTTP request to make."""

    url: str
    body: bytes = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: {"content-type": "application/json"})
    method: str = "POST"


class ApiResponse(msgspec.Struct, frozen=True):
    """What came back; header names are lower case. `is_cut` if the body was longer than we read."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    is_cut: bool = False

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Recipient(msgspec.Struct, frozen=True):
    """Whom a turn's answer goes to: its conversation, and the messages that it answers, in order.

    `reply_to` is the id of the message to quote, if the reply is to quote one and the platform can.
    """

    key: ConversationKey
    turn_id: str
    messages: tuple[Message, ...]
    reply_to: str = ""

    @property
    def account(self) -> str:
        """Our side's id as the platform writes it; "" if the platform named none."""
        return address.read_account(self.key.account).own_id

    @property
    def thread(self) -> str:
        """The thread inside the chat, if any."""
        return address.read_topic(self.key.topic).thread

    @property
    def last(self) -> Message | None:
        return self.messages[-1] if self.messages else None


class ReplyApi(ABC):
    """One account at one platform, outwards. Built only if every option with the use "reply" is set."""

    longest: int
    """The longest text that the platform takes, in `unit`; longer replies are split."""
    unit: Unit = "characters"
    typing_ms: int = 0
    """How often a typing indicator must be renewed; 0 where there is none."""
    webhook_url: str = ""
    """The public address of the account's webhooks, if it is known: some platforms are told with each reply where to
    report what became of it."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` are those of the channel's options by name; options that are not set have their defaults."""
        self._values = values

    @property
    def addresses(self) -> tuple[str, ...]:
        """The URLs among the options: the operator named them, so they may be called wherever they lead."""
        return tuple(value for value in self._values.values() if value.startswith(("http://", "https://")))

    @abstractmethod
    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        """The call that sends one reply, no longer than `longest`. `reply_id` is the same on every try.

        Raises GiveUp if there is no way to this recipient.
        """

    @abstractmethod
    def check(self, response: ApiResponse) -> str:
        """The platform's id of the reply that it took. For any other response raises, with the platform's own words:

        RetryLater if it says when, or throttles; GiveUp if it will never take this; SendFailed if it may next time.
        """

    def typing_call(self, to: Recipient) -> ApiCall | None:
        """The call that shows the person that an answer is being written."""
        return None

    def typing_stopped_call(self, to: Recipient) -> ApiCall | None:
        """The call that takes it back, where one is needed and exists."""
        return None


def retry_later(text: str, asked: object, default_ms: int) -> RetryLater:
    """The platform throttles us. `asked` is its word on how long: a Retry-After header, or a number of seconds."""
    return RetryLater(retry_after_ms(asked, default_ms) / 1000, text)


def path_id(id: str, what: str) -> str:
    """The id as a part of a path, where `..` would lead to another place of the API. Raises GiveUp if it is no id.

    `what` begins the sentence: "The channel's id".
    """
    if not _PATH_ID.fullmatch(id):
        raise GiveUp(f"{what} is not as the platform writes ids (letters, digits, _ and -), so nothing is sent there.")
    return id
