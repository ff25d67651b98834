"""A request and its answer on a connection of ours, between uvicorn and the app.

How this works: uvicorn writes the head of an answer as soon as the app gives it, and the body afterwards. That is two
system calls for us, and two packets for the caller, who wakes up twice. Here a head that says how long the body is
waits for the body. If that comes in one piece, both leave in one write. Everything else is left to uvicorn: streams,
which have no length and must begin before their first piece, connections that end, callers who read slowly.
"""

import re
from collections.abc import Awaitable, Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

Headers = Iterable[tuple[bytes, bytes]]

EXCHANGE = "turntake.exchange"
"""Where a request's scope has its `Exchange`; other servers than ours have none."""
# uvicorn acts on these: whether the connection ends, and where the body does.
_FOR_UVICORN = (b"connection", b"transfer-encoding")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Exchange:
    """The app as uvicorn calls it for one request."""

    __slots__ = ("_app", "_cycle", "_head", "_length", "_receive")

    def __init__(self, app: ASGIApp, cycle: "RequestResponseCycle") -> None:
        self._app = app
        self._cycle = cycle
        self._head: Message | None = None
        self._length: bytes | None = None
        self._receive: Receive | None = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        scope[EXCHANGE] = self
        self._receive = receive
        return self._app(scope, receive, self.send)

    def take_body(self, receive: Receive, max_bytes: int) -> bytes | None:
        """The whole body, if it is here and not larger: then `receive` only tells that the caller left. Else None.

        Middleware may have put a `receive` of its own in front, which gives another body; then only that one counts.
        """
        cycle = self._cycle
        if receive is not self._receive or cycle.more_body or cycle.disconnected or len(cycle.body) > max_bytes:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        cycle.flow.resume_reading()
        return body

    async def send(self, message: Message) -> None:
        """What the app sends; an app that fails between head and body may still send another head."""
        if message["type"] == "http.response.start":
            self._length = _length(message["headers"])
            self._head = None if self._length is None or self._cycle.response_started else message
            if self._head is not None:
                return
        elif self._head is not None:
            head, self._head = self._head, None
            if self._is_plain(message):
                self._write(head, message.get("body", b""))
                return
            await self._cycle.send(head)  # type: ignore[arg-type]  # uvicorn has types of its own for these dicts
        await self._cycle.send(message)  # type: ignore[arg-type]

    def _is_plain(self, message: Message) -> bool:
        """Whether it is all of the body, and only has to be written."""
        cycle = self._cycle
        return (
            self._length == b"%d" % len(message.get("body", b""))
            and not message.get("more_body", False)
            and cycle.keep_alive
            and not (cycle.disconnected or cycle.flow.write_paused or cycle.waiting_for_100_continue)
            and cycle.scope["method"] != "HEAD"
        )

    def _write(self, head: Message, body: bytes) -> None:
        cycle = self._cycle
        cycle.transport.write(head_of(head["status"], [*cycle.default_headers, *head["headers"]]) + body)
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()


def head_of(status: int, headers: Headers) -> bytes:
    """The lines of an answer before its body."""
    return b"".join([_status_line(status), *[_line(name, value) for name, value in headers], b"\r\n"])


def _length(headers: Headers) -> bytes | None:
    """How long a head says that its body is; None if it does not, or says something that uvicorn must see."""
    length = None
    for name, value in headers:
        if name == b"content-length":
            length = value
        elif name in _FOR_UVICORN:
            return None
    return length


@lru_cache
def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())


@lru_cache(maxsize=512)  # nearly all answers have the same few headers, and some hundred lengths
def _line(name: bytes, value: bytes) -> bytes:
    """Refuses what would begin another header, wherever it came from."""
    if not _NAME.fullmatch(name) or _CONTROL.search(value):
        raise RuntimeError("An answer has a header that cannot be sent.")
    return b"%s: %s\r\n" % (name, value)
