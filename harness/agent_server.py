"""A real HTTP server on a free port whose every answer is scripted, down to the bytes and the reset."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from typing import Any


@dataclass
class Request:
    """What arrived. `gone` is set once the caller has closed the connection during an unfinished answer."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def event(self) -> Any:
        return json.loads(self.body)


@dataclass
class Wire:
    """The server's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Step = Callable[[Request, Wire], Awaitable[None]]


def answers(status: int, body: str | bytes | dict[str, Any] = b"", **headers: str) -> Step:
    """An ordinary answer; a dict is sent as JSON. Header names are written with underscores."""
    is_json = isinstance(body, dict)
    raw = json.dumps(body).encode() if is_json else body.encode() if isinstance(body, str) else bytes(body)  # type: ignore[arg-type]
    if raw:
        headers = {"content_type": "application/json" if is_json else "text/plain"} | headers

    async def step(request: Request, wire: Wire) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", f"content-length: {len(raw)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
        await wire.send("\r\n".join([*lines, "", ""]).encode() + raw)

    return step


async def resets(request: Request, wire: Wire) -> None:
    """Breaks the connection instead of answering."""
    wire.writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    wire.writer.close()


async def never_answers(request: Request, wire: Wire) -> None:
    """Waits until the caller gives up."""
    await wire.reader.read()
    request.gone.set()


async def trickles(request: Request, wire: Wire) -> None:
    """Always sends a little more, so that no single read ever takes long."""
    await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n")
    leaving = asyncio.ensure_future(wire.reader.read())
    while not leaving.done():
        await wire.send(b"1\r\n.\r\n")
        await asyncio.wait([leaving], timeout=0.01)
    request.gone.set()


async def floods(request: Request, wire: Wire) -> None:
    """Ten megabytes."""
    await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 10485760\r\n\r\n")
    for _ in range(160):
        await wire.send(b"x" * 65536)


class AgentServer:
    """Answers the n-th request by the n-th step of its script, and every further one by the last."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.script: list[Step] = [answers(204)]
        self.url = ""
        self._arrived = asyncio.Event()
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def events(self) -> list[Any]:
        return [request.event for request in self.requests]

    async def request(self, number: int) -> Request:
        """The `number`-th request, counted from 1, once it is there."""
        while len(self.requests) < number:
            self._arrived.clear()
            await self._arrived.wait()
        return self.requests[number - 1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        try:
            await self._converse(Wire(reader, writer), self._connections)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _converse(self, wire: Wire, connection: int) -> None:
        while not wire.writer.is_closing():
            first, *lines = (await wire.reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await wire.reader.readexactly(int(headers.get("content-length", 0)))
            request = Request(first.split(" ")[1], headers, body, connection)
            step = self.script[min(len(self.requests), len(self.script) - 1)]
            self.requests.append(request)
            self._arrived.set()
            await step(request, wire)


@asynccontextmanager
async def agent_server(*script: Step) -> AsyncIterator[AgentServer]:
    """A server that runs as long as the block, on this event loop."""
    agent = AgentServer()
    agent.script = list(script) or agent.script
    server = await asyncio.start_server(agent.serve, "127.0.0.1", 0)
    agent.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/agent"
    try:
        yield agent
    finally:
        server.close()
        await agent.close()
        await server.wait_closed()
