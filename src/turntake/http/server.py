"""uvicorn, set up for us: one process, our own socket, our own log lines, an exit code of 0 after a polite stop.

How a stop works: the first signal (or `stop`) begins the drain. `on_drain` is called, so that `/readyz` says 503 and no
turn is claimed any more, but requests are still answered for `drain_ms`, since a load balancer has to notice first. A
second signal ends the drain at once. Then `on_stop` is called, the moment to end answers that never end by themselves
(the streams of events); no connection is taken any more, and requests under way have `graceful_ms` to finish.
"""

import asyncio
import errno
import gc
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from turntake.errors import ConfigurationError
from turntake.http.connections import LimitedConnection, Limits
from turntake.http.hosts import family_of, reachable

BACKLOG = 2_048  # connections that the kernel keeps while the loop is busy: a burst of some tenths of a second
TICK_MS = 1_000  # the Date header of answers counts seconds
GC_THRESHOLDS = (20_000, 20, 20)
"""A busy second allocates far more than Python's 700 objects that wait for a collection, and hardly ever in cycles."""
SWITCH_MS = 1
"""How long a thread keeps the interpreter: a commit's thread, done with its disk, would wait 5 ms for it by default."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)

Action = Callable[[], None]


def nothing() -> None:
    """The action of those who do not need to know."""


class Server(uvicorn.Server):
    """Made and run on one event loop. `on_ready` is called once requests are answered.

    A guest in somebody else's loop leaves signals to them.
    """

    def __init__(
        self,
        app: ASGIApp,
        graceful_ms: int,
        on_ready: Action = nothing,
        on_stop: Action = nothing,
        *,
        on_drain: Action = nothing,
        drain_ms: int = 0,
        is_guest: bool = False,
        limits: Limits | None = None,
    ) -> None:
        protocol: Any = partial(LimitedConnection, limits or Limits())
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=max(1, graceful_ms // 1_000),
                backlog=BACKLOG,
            )
        )
        self._is_guest = is_guest
        self._on_ready, self._on_stop = on_ready, on_stop
        self._on_drain, self._drain_ms = on_drain, drain_ms
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()

    async def main_loop(self) -> None:
        """Instead of uvicorn's, which looks ten times a second whether to stop."""
        self._on_ready()
        await self._serve_until(math.inf)
        self._stopping.clear()
        self._on_drain()
        await self._serve_until(self._loop.time() + self._drain_ms / 1_000)

    async def _serve_until(self, end: float) -> None:
        """Returns at the loop's time `end`, or once told to stop."""
        # Not uvicorn's flag: a signal sets it a moment before the event, and would then count twice.
        while not self._stopping.is_set() and (left := end - self._loop.time()) > 0:
            await self.on_tick(0)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(left, TICK_MS / 1_000))

    def stop(self) -> None:
        """Stops as a signal would."""
        self.should_exit = True
        self._stopping.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)
        if self.force_exit:
            # uvicorn leaves the app to be cancelled then, and logs a traceback of it.
            await self.lifespan.shutdown()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's raises the signal again afterwards, which would end a clean stop with an exit code of -15."""
        signals = () if self._is_guest else SIGNALS
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, so that a port that is taken shows before anything else starts."""
    try:
        return socket.create_server((host, port), family=family_of(host), backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(_why_not(host, port, error)) from None


def url_of(bound: socket.socket) -> str:
    """A URL at which this machine reaches the socket."""
    host, port = bound.getsockname()[:2]
    name = reachable(host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def tune() -> None:
    """Sets the interpreter up for a process that only serves: what is loaded by now stays until its end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_MS / 1_000)


def new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use: stop what runs there, or choose another with --port {port + 1}."
    if error.errno == errno.EACCES:
        return f"Port {port} needs more rights than this user has: choose one above 1023 with --port 8080."
    return f"Cannot listen on {host}:{port} ({error.strerror or error}): choose another --host or --port."
