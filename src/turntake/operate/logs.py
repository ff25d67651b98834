"""Log lines: text for people at a terminal, JSON for machines. What people wrote, and secrets, stay out of both."""

import hashlib
import logging
import os
import re
import secrets
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TextIO

import msgspec
from msgspec import Meta

from turntake.instants import rfc3339
from turntake.traces import trace_of, without_words

Format = Literal["auto", "text", "json"]


class LogOptions(msgspec.Struct, frozen=True):
    """`[log]`"""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The lowest level that is logged.")
    ] = "info"
    format: Annotated[Format, Meta(description="auto: text on a terminal, else JSON lines.")] = "auto"
    turns: Annotated[
        Literal["auto", "always", "never"],
        Meta(description="Log a line for each turn that was answered or stopped; auto: on a terminal only."),
    ] = "auto"
    error_text: Annotated[
        bool,
        Meta(description="Log what an agent's exception says, which may quote a person, and not only where it arose."),
    ] = False
    people: Annotated[
        Literal["shown", "hashed"],
        Meta(description="Whether conversations are logged with the person's number or name, or with a hash of it."),
    ] = "shown"


WITHHELD = frozenset(
    {"text", "message_text", "messages_text", "body", "payload", "reply", "replies", "caption", "metadata"}
    | {"secret", "token", "password", "authorization", "api_key", "api_keys", "key", "signature", "headers"}
)
QUIET = ("httpx2", "httpcore2", "asyncio")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SALT = secrets.token_bytes(16)
_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}


def configure(options: LogOptions = LogOptions(), stream: TextIO | None = None) -> None:  # noqa: B008 - frozen
    """Sends every logger's lines to `stream` (standard error), uvicorn's errors included, its access log not."""
    stream = stream or sys.stderr
    is_text = options.format == "text" or (options.format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    hide = hidden if options.people == "hashed" else str
    has_words = options.error_text or options.level == "debug"
    colour = is_coloured(stream)
    handler.setFormatter(TextFormatter(colour, has_words, hide) if is_text else JsonFormatter(has_words, hide))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(options.level.upper())
    _tame(is_debug=options.level == "debug")


def shows_turns(options: LogOptions, stream: TextIO | None = None) -> bool:
    """Whether each turn gets a line when it is over."""
    is_watched = (stream or sys.stderr).isatty()
    return options.turns == "always" or (options.turns == "auto" and is_watched)


def is_coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def hidden(key: str) -> str:
    """A conversation's key without the person: tenant, channel and account stay, a hash stands for the rest.

    It is salted anew in every process: with a fixed salt, whoever has a list of phone numbers could undo it.
    """
    *known, person = str(key).split(":", 3)
    return ":".join((*known, "#" + hashlib.blake2s(person.encode(), key=_SALT, digest_size=6).hexdigest()))


def fields_of(record: logging.LogRecord, hide: Callable[[str], str] = str) -> dict[str, Any]:
    """What came with the record as `extra`, without anything that may hold a person's words or a secret.

    `hide` is applied to the key of a conversation.
    """
    fields = {
        name: "…" if name in WITHHELD else value
        for name, value in vars(record).items()
        if name not in _STANDARD and not name.startswith("_")
    }
    if "conversation" in fields:
        fields["conversation"] = hide(fields["conversation"])
    return fields


class TextFormatter(logging.Formatter):
    """`10:21:03 INFO  Listening  url=http://127.0.0.1:8080`"""

    def __init__(self, is_coloured: bool = False, has_words: bool = False, hide: Callable[[str], str] = str) -> None:
        super().__init__()
        self._is_coloured = is_coloured
        self._has_words = has_words
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        # Local time: this is read by somebody who looks at the clock on the wall.
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        fields = [(name, value) for name, value in fields_of(record, self._hide).items() if name != "action"]
        facts = " ".join(self._painted("2", f"{name}=") + _plain(value) for name, value in fields)
        level = self._painted(_COLOURS.get(record.levelname, "0"), f"{record.levelname:<7}")
        line = f"{self._painted('2', at)} {level} {_one_line(record.getMessage())}" + (f"  {facts}" if facts else "")
        trace = trace_in(record, self._has_words)
        return f"{line}\n{trace}" if trace else line

    def _painted(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_coloured else text


class JsonFormatter(logging.Formatter):
    """One object per line: `at`, `level`, `logger`, `message`, then the fields."""

    def __init__(self, has_words: bool = False, hide: Callable[[str], str] = str) -> None:
        super().__init__()
        self._has_words = has_words
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": rfc3339(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in fields_of(record, self._hide).items() if name not in line}
        trace = trace_in(record, self._has_words)
        if trace:
            line["trace"] = trace
        return msgspec.json.encode(line, enc_hook=str).decode()


def trace_in(record: logging.LogRecord, has_words: bool) -> str:
    """Where an exception came from, and its kind. What it says may quote a person, and is shown only on request."""
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    error: BaseException = getattr(record, "_error", record.exc_info[1])
    return trace_of(error if has_words else without_words(error))


def _tame(is_debug: bool) -> None:
    access = logging.getLogger("uvicorn.access")
    access.handlers.clear()
    access.propagate = False
    for name in ("uvicorn", "uvicorn.error", *QUIET):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET if is_debug and name not in QUIET else logging.WARNING)


def _plain(value: Any) -> str:
    text = _one_line(str(value))
    return f'"{text}"' if " " in text or not text else text


def _one_line(text: str) -> str:
    """Without what begins a line or steers a terminal."""
    return _CONTROL.sub(_escaped, text)


def _escaped(control: re.Match[str]) -> str:
    return "\\e" if control[0] == "\x1b" else control[0].encode("unicode_escape").decode()
