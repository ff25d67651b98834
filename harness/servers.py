"""Real servers for tests, on free loopback ports."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx2
import uvicorn
from starlette.types import ASGIApp

from turntake import TurnTake
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.deliver.turn import Turn

T = TypeVar("T")
MADE_KEY = "the key that a server of tests has made"
OURS = {"x-api-key": MADE_KEY}
"""What a program on this machine sends, where a channel has its secret and there are no API keys."""
Told = tuple[str, dict[str, Any]]


class Echo(Sink):
    """Answers with what was said."""

    async def deliver(self, turn: Turn) -> Answer:
        return Answer((turn.text,))


class Later(Sink):
    """Leaves the answer to the API."""

    async def deliver(self, turn: Turn) -> Pending:
        return Pending(within_ms=600_000)


class Served(uvicorn.Server):
    """uvicorn in a thread of its own, with the event loop within reach."""

    def __init__(self, app: ASGIApp) -> None:
        config = uvicorn.Config(app, ws="none", lifespan="on", log_config=None, timeout_graceful_shutdown=5)
        super().__init__(config)
        self._app = app
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def begin(self) -> None:
        self._thread.start()
        assert self._ready.wait(20), "the server did not start"
        assert self.started, "the server refused to start"

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server did not stop"

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's answer, from the server's own event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        await super().startup(sockets)
        self._ready.set()

    async def main_loop(self) -> None:
        """uvicorn's looks ten times a second whether to stop, and a test would wait for that."""
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        events = getattr(getattr(self._app, "state", None), "events", None)
        if events is not None:
            events.close()
        await super().shutdown(sockets)

    async def _live(self) -> None:
        try:
            await self.serve(sockets=[self._socket])
        finally:
            self._socket.close()
            self._ready.set()


@contextmanager
def serving_app(app: ASGIApp) -> Iterator[Served]:
    server = Served(app)
    server.begin()
    try:
        yield server
    finally:
        server.end()


@contextmanager
def serving(turns: TurnTake, **options: Any) -> Iterator[Served]:
    """The service of `turns`, as `turntake serve` would run it."""
    with serving_app(turns.asgi(**{"made_key": MADE_KEY} | options)) as server:
        yield server


@contextmanager
def talking(turns: TurnTake, **options: Any) -> Iterator[httpx2.Client]:
    """A client of a service that runs for as long as it is needed."""
    with serving(turns, **options) as server, httpx2.Client(base_url=server.url, timeout=20, headers=OURS) as client:
        yield client


@contextmanager
def watching(client: httpx2.Client, **params: str) -> Iterator[Iterator[Told]]:
    """Everything the service tells from now on."""
    with client.stream("GET", "/v1/events", params=params) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        assert next(lines).startswith(":")
        yield told(lines)


def told(lines: Iterator[str]) -> Iterator[Told]:
    kind = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def until(events: Iterator[Told], kind: str) -> dict[str, Any]:
    """The next event of this kind; those before it are passed over."""
    return next(event for found, event in events if found == kind)


@asynccontextmanager
async def calling(app: ASGIApp, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that calls the app on this event loop, without a network or a lifespan."""
    transport = httpx2.ASGITransport(app=app, **options)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
