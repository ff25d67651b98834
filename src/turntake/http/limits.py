"""Bounds what a request may send and how long it may take: the ASGI server does neither by itself."""

import asyncio
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turntake.clock import Clock
from turntake.errors import Problem

MAX_BODY_BYTES = 1_048_576
MAX_WEBHOOK_BYTES = 3 * 1_048_576  # what Meta says it may send
RECEIVE_MS = 10_000
DRAINED = 8


class Guard:
    """Reads the whole body before anything else sees the request; the app inside receives it in one piece."""

    def __init__(
        self, app: ASGIApp, clock: Clock, max_body_bytes: int = MAX_BODY_BYTES, receive_ms: int = RECEIVE_MS
    ) -> None:
        self._app = app
        self._patience = Patience(clock, receive_ms)
        self._max_bytes = max_body_bytes
        self._receive_ms = receive_ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            size = announced_bytes(scope["headers"])
            if size != 0:
                body = await self._body(size, receive)
                if body is None:
                    return
                receive = _again(body, receive)
        await self._app(scope, receive, send)

    async def _body(self, size: int | None, receive: Receive) -> bytes | None:
        """The body, or None if the sender left before its end."""
        if size is not None and size > DRAINED * self._max_bytes:
            raise self._too_large()
        task = self._patience.begin()
        try:
            return await self._collect(receive)
        except asyncio.CancelledError:
            if not self._patience.is_over(task):
                raise
            detail = f"The body did not arrive within {self._receive_ms} ms; nothing was accepted, so send it again."
            raise Problem(408, detail, headers={"Connection": "close"}) from None
        finally:
            self._patience.end(task)

    async def _collect(self, receive: Receive) -> bytes | None:
        """A body that is a little too large is read to its end, so that its sender gets to read the answer."""
        chunks: list[bytes] = []
        size, more = 0, True
        while more and size <= DRAINED * self._max_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            size += len(chunk)
            if size <= self._max_bytes:
                chunks.append(chunk)
            more = message.get("more_body", False)
        if size > self._max_bytes:
            raise self._too_large()
        return b"".join(chunks)

    def _too_large(self) -> Problem:
        detail = f"The body is larger than {self._max_bytes} bytes; send less at a time, and files by reference."
        return Problem(413, detail, headers={"Connection": "close"})


class Patience:
    """Cancels tasks that take longer than `limit_ms`. One timer serves them all, so that a quick one costs nothing."""

    def __init__(self, clock: Clock, limit_ms: int) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._since: dict[asyncio.Task[Any], int] = {}
        self._cancelled: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.AbstractEventLoop | None = None

    def begin(self) -> asyncio.Task[Any]:
        task = asyncio.current_task()
        assert task is not None, "ASGI apps run in tasks"
        now = self._since[task] = self._clock.now()
        if self._watching is not task.get_loop():
            self._look_at(now + self._limit_ms)
        return task

    def end(self, task: asyncio.Task[Any]) -> None:
        self._since.pop(task, None)

    def is_over(self, task: asyncio.Task[Any]) -> bool:
        """Whether it was cancelled here, and by nobody else."""
        if task not in self._cancelled:
            return False
        self._cancelled.discard(task)
        return task.uncancel() == 0

    def _look_at(self, at: int) -> None:
        self._watching = asyncio.get_running_loop()
        self._clock.call_at(at, self._look)

    def _look(self) -> None:
        """Cancels whoever began too long ago, then sleeps until the next one may be late."""
        self._watching = None
        late_since = self._clock.now() - self._limit_ms
        for task, since in list(self._since.items()):
            if since > late_since:
                self._look_at(since + self._limit_ms)
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


def _again(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return receive_again
