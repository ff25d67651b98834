"""What a person said as one text, or as messages for a model: the formats in which an agent may like its turn. Pure."""

import re
from collections.abc import Sequence
from typing import Literal, TypedDict

from turntake.rules.message import Message, joined

TextFormat = Literal["lines", "times", "senders", "chat"]
"""Lines alone; each with the time since the first, or with its sender; or lines, and messages for a model beside them.
"""
_NAME_CHARACTERS = 64  # what chat completions take as a name, and of these characters only
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


class ChatMessage(TypedDict, total=False):
    """A message as OpenAI's chat completions take it, and most others. `name` tells several senders apart."""

    role: Literal["user"]
    content: str
    name: str


def text_as(text_format: TextFormat, messages: Sequence[Message]) -> str:
    """The messages that have words, in their order."""
    if text_format == "times":
        return _with_times(messages)
    return _by_sender(messages) if text_format == "senders" else joined(tuple(messages))


def chat_messages(messages: Sequence[Message]) -> list[ChatMessage]:
    """One for each message that has words."""
    worded = [message for message in messages if message.text]
    names = {message.sender: _name(message.sender) for message in worded}
    if len(names) < 2:
        return [{"role": "user", "content": message.text} for message in worded]
    return [_named(message.text, names[message.sender]) for message in worded]


def _with_times(messages: Sequence[Message]) -> str:
    """`[+5s] my order`: since the first message was sent, or came where platforms do not say when they were sent."""
    is_told = all(message.sent_at is not None for message in messages)
    times = [(message.sent_at or 0) if is_told else message.received_at for message in messages]
    first_at = min(times, default=0)
    return "\n".join(
        f"[+{_ago(at - first_at)}] {_indented(message.text)}"
        for at, message in zip(times, messages, strict=True)
        if message.text
    )


def _by_sender(messages: Sequence[Message]) -> str:
    """`ada: my order`; without a name where a message has no sender."""
    return "\n".join(
        f"{_line(message.sender)}: {_indented(message.text)}" if message.sender else _indented(message.text)
        for message in messages
        if message.text
    )


def _ago(duration_ms: int) -> str:
    """`5s`, `2m10s`, `1h5m`: two figures are enough."""
    minutes, seconds = divmod(duration_ms // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def _indented(text: str) -> str:
    """Further lines of a message stand two blanks to the right, or whoever writes `ada: …` in one would be Ada."""
    return "\n  ".join(text.splitlines())


def _line(sender: str) -> str:
    return " ".join(sender.split())


def _name(sender: str) -> str:
    return _NOT_IN_NAMES.sub("_", sender)[:_NAME_CHARACTERS]


def _named(text: str, name: str) -> ChatMessage:
    return {"role": "user", "content": text, "name": name} if name else {"role": "user", "content": text}
