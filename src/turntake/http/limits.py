"""Bounds how large the body of a request may be and how long it may take to arrive. The ASGI server does neither.

How this works: `BodyLimit` stands in front of an endpoint, reads the whole body, and hands it on in one piece, so that
no endpoint ever waits for a slow sender. A body that our own server has read by then, as nearly every one, needs no
time limit. A body that is too large is refused, but one that is not far too large is still read to its end: a sender
that is cut off while it writes sees a broken connection instead of our answer.
Bodies that arrive at the same time may take so much memory together; then only small ones are read any further.

`asyncio.timeout` would set and cancel a timer for every request. `Deadlines` notes when each read began instead, and
keeps one timer for all of them: it fires when the oldest read may be late, cancels those that are, and is set again
for the next. Reads begin in the order in which they are noted and all have the same limit, so the first entry of the
dict is always the oldest.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turntake.clock import Clock
from turntake.counted_log import CountedLog
from turntake.errors import Problem
from turntake.http.exchange import EXCHANGE, Exchange
from turntake.http.options import HttpOptions

log = logging.getLogger("turntake")

_DEFAULTS = HttpOptions()
# Eighty of the longest that platforms send, at once. Whose a body is shows only when all of it is there.
MOST_ARRIVING_BYTES = 256 * 1024 * 1024
# Nearly every body; no number of large ones keeps these out.
SMALL_BYTES = 65_536
DRAIN_FACTOR = 8  # reads this many times the limit to deliver a refusal; whoever sends more is cut off


class ArrivingBytes:
    """What the bodies that have begun to arrive and did not end yet take together."""

    def __init__(self, clock: Clock) -> None:
        self._total = 0
        self._log = CountedLog(log, clock)

    def add(self, more: int, size: int) -> int:
        """`more` bytes came of a body that has `size` by now. Returns `more`; raises Problem if that is too much."""
        if self._total + more > MOST_ARRIVING_BYTES and size > SMALL_BYTES:
            self._log.tell("Too many large bodies arrive at once", {"action": "refuse"})
            detail = "Too many large bodies arrive at once; nothing was accepted, so send it again."
            raise Problem(503, detail, headers={"Retry-After": "5", "Connection": "close"})
        self._total += more
        return more

    def end(self, size: int) -> None:
        """A body ended, or was given up, of which `size` bytes were added."""
        self._total -= size


class BodyLimit:
    """Reads the whole body before anything else sees the request; the app inside receives it in one piece."""

    def __init__(
        self,
        app: ASGIApp,
        clock: Clock,
        max_body_bytes: int = _DEFAULTS.body_bytes,
        receive_ms: int = _DEFAULTS.receive_ms,
        arriving: ArrivingBytes | None = None,
    ) -> None:
        """`arriving` is shared by all endpoints of a server."""
        self._app = app
        self._arriving = arriving or ArrivingBytes(clock)
        self._deadlines = Deadlines(clock, receive_ms)
        self._max_bytes = max_body_bytes
        self._receive_ms = receive_ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            body = self._arrived(scope, receive)
            if body is None and (size := announced_bytes(scope["headers"])) != 0:
                body = await self._body(size, receive)
                if body is None:
                    return
            if body is not None:
                receive = _replay(body, receive)
        await self._app(scope, receive, send)

    def _arrived(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body, if our own server has all of it already, as of nearly every request, and it is not too large."""
        exchange: Exchange | None = scope.get(EXCHANGE)
        return None if exchange is None else exchange.take_body(receive, self._max_bytes)

    async def _body(self, size: int | None, receive: Receive) -> bytes | None:
        """The body, or None if the sender left before its end."""
        if size is not None and size > DRAIN_FACTOR * self._max_bytes:
            raise self._too_large()
        task = self._deadlines.begin()
        try:
            return await self._collect(receive)
        except asyncio.CancelledError:
            if not self._deadlines.is_over(task):
                raise
            detail = f"The body did not arrive within {self._receive_ms} ms; nothing was accepted, so send it again."
            raise Problem(408, detail, headers={"Connection": "close"}) from None
        finally:
            self._deadlines.end(task)

    async def _collect(self, receive: Receive) -> bytes | None:
        chunks: list[bytes] = []
        size, added, more = 0, 0, True
        try:
            while more and size <= DRAIN_FACTOR * self._max_bytes:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                chunk = message.get("body", b"")
                size += len(chunk)
                more = message.get("more_body", False)
                if size <= self._max_bytes:
                    chunks.append(chunk)
                    added += self._arriving.add(len(chunk), size) if more else 0
        finally:
            self._arriving.end(added)
        if size > self._max_bytes:
            raise self._too_large()
        return b"".join(chunks)

    def _too_large(self) -> Problem:
        detail = f"The body is larger than {self._max_bytes} bytes; send less at a time, and files by reference."
        return Problem(413, detail, headers={"Connection": "close"})


class Deadlines:
    """Cancels tasks that take longer than `limit_ms`, with one timer for all of them."""

    def __init__(self, clock: Clock, limit_ms: int) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._since: dict[asyncio.Task[Any], int] = {}
        self._cancelled: set[asyncio.Task[Any]] = set()
        self._timer_of: asyncio.AbstractEventLoop | None = None

    def begin(self) -> asyncio.Task[Any]:
        """The current task has `limit_ms` from now on, until `end`."""
        task = asyncio.current_task()
        assert task is not None, "ASGI apps run in tasks"
        now = self._since[task] = self._clock.now()
        # A loop that ended took its timer with it, as happens when tests use one app in several loops.
        if self._timer_of is not task.get_loop():
            self._set_timer(now + self._limit_ms)
        return task

    def end(self, task: asyncio.Task[Any]) -> None:
        self._since.pop(task, None)

    def is_over(self, task: asyncio.Task[Any]) -> bool:
        """Whether it was cancelled here, and not by its server too: such a cancellation must go on."""
        if task not in self._cancelled:
            return False
        self._cancelled.discard(task)
        return task.uncancel() == 0

    def _set_timer(self, at: int) -> None:
        self._timer_of = asyncio.get_running_loop()
        self._clock.call_at(at, self._cancel_late)

    def _cancel_late(self) -> None:
        self._timer_of = None
        late_since = self._clock.now() - self._limit_ms
        for task, since in list(self._since.items()):
            if since > late_since:
                self._set_timer(since + self._limit_ms)
                break
            del self._since[task]
            self._cancelled.add(task)
            task.cancel()


def announced_bytes(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """How long the body will be: 0 if there is none, None if only its end will tell."""
    size: int | None = 0
    for name, value in headers:
        if name == b"content-length":
            size = int(value) if value.isdigit() else None
        elif name == b"transfer-encoding":
            return None
    return size


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body in one piece first, and then what comes after it: the sender's leaving."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return receive_again
