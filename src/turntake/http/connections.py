"""Connections before there is a request: how many there may be, and how large and slow their headers.

uvicorn leaves all of that to a proxy. Without limits, some idle connections from one laptop would take every file that
the process may open, and one header that never ends would keep the event loop busy.

How this works: `LimitedConnection` is uvicorn's protocol with limits. It counts the bytes of headers as they come, and
their fields once they are complete. A connection that is not through with its headers is noted in `Limits`, which keeps
one timer for all of them (see `http/limits.py` for why) and closes those that are late. On a connection that is kept, a
request that arrives in one piece, as nearly all do, is never noted. Beyond the largest number of connections, a new one
is answered 503 before it is read.

Two things that uvicorn takes without end are bounded too: fields that follow a body (trailers), which are never headers
here, and requests that come before the one in front of them is answered. Whoever does not read its answers is cut off.

Nothing is upgraded to another protocol. Clients that offer to (Java's, `curl --http2`) expect their request to be taken
as it is, but the parser passes over its body. So such a request is read again without the header that offers it.
"""

import logging
import sys
from functools import cached_property, lru_cache
from typing import Any, Literal, cast

import httptools

from turntake.clock import Clock, SystemClock, Timer
from turntake.counted_log import CountedLog
from turntake.errors import Problem
from turntake.http.exchange import head_of
from turntake.http.hosts import LONGEST_HOST
from turntake.http.kept_connection import KeptConnection
from turntake.http.options import HttpOptions
from turntake.http.peer_user import Address, is_another_users
from turntake.http.problem import response_to

log = logging.getLogger("turntake")

_DEFAULTS = HttpOptions()
# What the process needs besides: the store, calls to agents and platforms, files. Of a small limit, half.
OTHER_FILES = 256
# Requests that wait on one connection. Clients send a few ahead at most, and each takes some kilobytes.
WAITING_REQUESTS = 100
# A network that lost its way finds another in seconds; whoever takes no byte for so long does not read.
UNREAD_MS = 30_000

State = Literal["headers", "body", "idle"]
"""What comes next on a connection: the end of the headers, the end of the body, or the first byte of a request."""


class _TooLarge(Exception):
    """The headers are not read to their end."""


class Limits:
    """What the connections of one server share: the limits, those that are not through with their headers, the log."""

    def __init__(self, options: HttpOptions = _DEFAULTS, clock: Clock | None = None, files: int | None = None) -> None:
        """`files` is how many this process may open; None if that is not known."""
        self.options = options
        self.connections = options.connections if files is None else most_connections(options.connections, files)
        self.clock = clock or SystemClock()
        self.log = CountedLog(log, self.clock)
        self._since: dict[LimitedConnection, int] = {}
        self._has_timer = False

    def begin(self, connection: "LimitedConnection") -> None:
        """From now on its headers have `header_ms`, until `end`; one that is noted already keeps its time."""
        if connection not in self._since:
            now = self._since[connection] = self.clock.now()
            if not self._has_timer:
                self._set_timer(now)

    def end(self, connection: "LimitedConnection") -> None:
        self._since.pop(connection, None)

    def _set_timer(self, since: int) -> None:
        self._has_timer = True
        self.clock.call_at(since + self.options.header_ms, self._close_late)

    def _close_late(self) -> None:
        self._has_timer = False
        late_since = self.clock.now() - self.options.header_ms
        for connection, since in list(self._since.items()):
            if since > late_since:
                self._set_timer(since)
                break
            del self._since[connection]
            connection.refuse_late()


class LimitedConnection(KeptConnection):
    """uvicorn's protocol with limits. Whoever breaks one is told so, and the connection is closed."""

    def __init__(self, limits: Limits, **made_by_uvicorn: Any) -> None:
        super().__init__(**made_by_uvicorn)
        self._limits = limits
        self._next: State = "headers"
        self._bytes = 0
        self._is_large = False
        self._most_bytes = limits.options.header_bytes
        self._head_again = b""
        self._unread_bytes = 0
        self._unread_timer: Timer | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        most = self._limits.connections
        if len(self.connections) > most:
            detail = f"{most} connections are open, and no more are taken; try again."
            self._refuse(503, detail, {"Retry-After": "1"}, "Too many connections are open")
        else:
            self._limits.begin(self)

    @cached_property
    def is_another_users(self) -> bool:
        """Whether a program of another user on this machine opened it; the kernel is asked once."""
        return is_another_users(self.client, cast(Address | None, self.server))

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.end(self)
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        # The rest of a body that was refused before its end is not a reason to keep the connection.
        if self._next != "body" or not self.cycle.response_complete:
            self.idle_since = None
        before = self._next
        if before == "body":
            self._bytes += len(data)
        elif before == "idle":
            self._next = "headers"
        # All that came since the last request: if that is not too much, neither are the headers in it.
        self._is_large = self._bytes + len(data) > self._most_bytes
        try:
            feed = self._feed_large if self._is_large else self._feed
            feed(data)
            if self._next == "idle":
                self._limits.end(self)
            else:
                self._note(0 if before == "body" else len(data))
        except httptools.HttpParserError as error:
            self._refuse_misread(error)

    def _feed_large(self, data: bytes) -> None:
        """Hands bytes to the parser; of headers no more than they may have, since it keeps them to their end."""
        room = self._most_bytes + 1
        if self._next == "headers" and len(data) > room:
            self._feed(data[:room])
            data = b"" if self._next == "headers" else data[room:]
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Hands bytes to the parser; if a request offers an upgrade, to a new one, which does not see that."""
        while True:
            try:
                return self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._head_again + data[upgrade.args[0] :]
            self._head_again = b""
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn sets its own up

    def _note(self, size: int) -> None:
        """The request did not end yet, and `size` more bytes of its headers came; or of what follows its body."""
        if self._next == "headers":
            self._bytes += size
        if self._bytes > self._most_bytes:
            self._refuse_large()
        elif self._next == "headers":
            self._limits.begin(self)
        else:
            self._limits.end(self)

    # What the parser tells. It wraps what is raised here in an HttpParserError.
    def on_headers_complete(self) -> None:
        options = self._limits.options
        if len(self.headers) > options.header_fields or (self._is_large and self._size() > options.header_bytes):
            raise _TooLarge
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (hosts and len(hosts[0]) > LONGEST_HOST):
            raise ValueError("There is one Host, and it is the name of a host.")
        if self.parser.should_upgrade():
            self._head_again = self._head_without_upgrade()
            return
        self._next, self._bytes = "body", 0
        super().on_headers_complete()
        self.headers = []  # what follows the body is put here, where nobody looks, and not into the request
        if len(self.pipeline) > WAITING_REQUESTS:
            raise _TooLarge

    def on_body(self, body: bytes) -> None:
        self._bytes = 0  # so that what is counted is no body
        super().on_body(body)

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _head_without_upgrade(self) -> bytes:
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise ValueError("This is not a proxy.")
        first = b"%s %s HTTP/%s\r\n" % (method, self.url, self.parser.get_http_version().encode())
        lines = [b"%s: %s\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        return first + b"".join(lines) + b"\r\n"

    def on_message_complete(self) -> None:
        if self._head_again:
            return
        super().on_message_complete()
        self._next, self._bytes = "idle", 0

    # What the transport tells: the client does not read as fast as it is answered.
    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unread()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def _watch_unread(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        clock = self._limits.clock
        self._unread_timer = clock.call_at(clock.now() + UNREAD_MS, self._close_unread)

    def _stop_watching(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _close_unread(self) -> None:
        """However slowly an answer is read, it may go on; if nothing of it was, the connection ends."""
        if self.transport.get_write_buffer_size() < self._unread_bytes:
            self._watch_unread()
        else:
            self._limits.log.tell("A client does not read its answer", {"action": "refuse"})
            self.transport.abort()

    def refuse_late(self) -> None:
        """The headers did not come in time. A connection that said nothing at all is closed without a word."""
        if self.headers is None:
            self.transport.close()
        else:
            self._refuse(
                408, f"The headers did not arrive within {self._limits.options.header_ms} ms; send them at once."
            )

    def _refuse_misread(self, error: httptools.HttpParserError) -> None:
        if isinstance(error.__context__, _TooLarge):
            self._refuse_large()
        else:
            self._refuse(400, "This is not a request of HTTP/1.1.")

    def _refuse_large(self) -> None:
        limit = self._limits.options
        detail = f"The headers have over {limit.header_bytes} bytes or {limit.header_fields} fields; send fewer."
        self._refuse(431, detail)

    def _refuse(
        self,
        status: int,
        detail: str,
        headers: dict[str, str] | None = None,
        sentence: str = "A connection was refused",
    ) -> None:
        """Answers and closes; in the middle of another answer it only closes."""
        self._limits.end(self)
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_answer(status, detail, tuple((headers or {}).items())))
        self._limits.log.tell(sentence, {"action": "refuse", "status": status})
        self.transport.close()


def most_connections(wanted: int, files: int) -> int:
    """How many connections leave enough of the files that a process may open for everything else."""
    return max(1, min(wanted, max(files - OTHER_FILES, files // 2)))


def raise_file_limit() -> int | None:
    """Lets this process open as many files as it may, and says how many; None where there is no such limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return None if hard == resource.RLIM_INFINITY else hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return soft  # macOS: the hard limit may be more than the kernel gives
    return None if hard == resource.RLIM_INFINITY else hard


@lru_cache(maxsize=32)
def _answer(status: int, detail: str, more: tuple[tuple[str, str], ...]) -> bytes:
    response = response_to(Problem(status, detail, headers=dict(more) | {"Connection": "close"}))
    return head_of(status, response.raw_headers) + bytes(response.body)
