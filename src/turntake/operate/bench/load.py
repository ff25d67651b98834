"""HTTP load from one process: connections that are kept, and as little parsing as possible."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import cast

import msgspec

from turntake.clock import SystemClock

BURST = 5
RequestOf = Callable[[str, int], bytes]
"""The request for a person's n-th message."""
_encode = msgspec.json.Encoder().encode
_clock = SystemClock()


def stopwatch_ms() -> float:
    """Milliseconds since some moment, finer than a clock's: for differences only."""
    return perf_counter() * 1_000


class Connection(asyncio.Protocol):
    """One request at a time; the answer is its status and body."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self._received[:head_end].lower()
        at = head.find(b"content-length: ")
        length = int(head[at + 16 :].split(b"\r", 1)[0]) if at >= 0 else 0
        if len(self._received) >= head_end + 4 + length and self._answer is not None:
            body, self._received = self._received[head_end + 4 :], b""
            self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("The server closed the connection."))


class Load:
    """Requests to one server, in the shape of its API."""

    def __init__(self, host: str, port: int, api_key: str = "") -> None:
        self._host = host
        self._port = port
        key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        self._head = f"Host: {host}:{port}\r\n{key}Content-Type: application/json\r\n"

    def post(self, path: str, body: object) -> bytes:
        data = _encode(body)
        return f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(data)}\r\n\r\n".encode() + data

    def raw(self, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """A request that somebody else wrote, such as a platform."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if name != "content-type")
        return f"POST {path} HTTP/1.1\r\n{self._head}{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def get(self, path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode()

    @asynccontextmanager
    async def connections(self, count: int) -> AsyncIterator[list[Connection]]:
        loop = asyncio.get_running_loop()
        opened = [(await loop.create_connection(Connection, self._host, self._port))[1] for _ in range(count)]
        try:
            yield opened
        finally:
            for connection in opened:
                connection.transport.close()

    async def flood(self, requests: Iterator[bytes], for_ms: float, connections: int) -> list[float]:
        """As fast as the server answers, for so long: the latency of each request, in milliseconds."""
        latencies: list[float] = []
        end = stopwatch_ms() + for_ms

        async def client(connection: Connection) -> None:
            while (started := stopwatch_ms()) < end:
                status, body = await connection.ask(next(requests))
                if status != 202:
                    raise ConnectionError(f"The server answered {status}: {body[:200]!r}")
                latencies.append(stopwatch_ms() - started)

        async with self.connections(connections) as opened, asyncio.TaskGroup() as clients:
            for connection in opened:
                clients.create_task(client(connection))
        return latencies

    async def bursts(
        self, rate: float, for_ms: float, connections: int, name: str, request_of: RequestOf | None = None
    ) -> tuple[list[str], list[float]]:
        """People who write five messages 50 to 200 ms apart, `rate` messages a second in all.

        Without `request_of`, the messages go to the API. Returns the conversations and each acknowledgement's latency.
        """
        request_of = request_of or (lambda person, number: self.post("/v1/messages", message(person, number)))
        names: list[str] = []
        latencies: list[float] = []
        async with self.connections(connections) as opened, asyncio.TaskGroup() as people:
            idle: asyncio.Queue[Connection] = asyncio.Queue()
            for connection in opened:
                idle.put_nowait(connection)
            started = _clock.now()
            for number in range(int(rate * for_ms / 1_000 / BURST)):
                await _clock.sleep_until(started + int(number * BURST * 1000 / rate))
                names.append(f"{name}{number}")
                people.create_task(self._person(names[-1], idle, latencies, request_of))
        return names, latencies

    async def _person(
        self, name: str, idle: "asyncio.Queue[Connection]", latencies: list[float], request_of: RequestOf
    ) -> None:
        for number in range(BURST):
            request = request_of(name, number)
            connection = await idle.get()
            started = stopwatch_ms()
            status, body = await connection.ask(request)
            if status >= 300:
                raise ConnectionError(f"The server answered {status}: {body[:200]!r}")
            latencies.append(stopwatch_ms() - started)
            idle.put_nowait(connection)
            await _clock.sleep(random.randint(50, 200))


def message(conversation: str, number: int) -> dict[str, str]:
    return {
        "conversation": conversation,
        "id": f"m{number}",
        "sender": conversation,
        "text": "and it has not arrived yet",
    }


def single_messages(load: Load, name: str, of: Callable[[int], str] | None = None) -> Iterator[bytes]:
    """One message per request, five to a conversation unless `of` says which."""
    for number in itertools.count():
        conversation = of(number) if of else f"{name}{number // BURST}"
        yield load.post("/v1/messages", message(conversation, number))


def batches(load: Load, name: str, size: int) -> Iterator[bytes]:
    """Many messages per request, five to a conversation."""
    for number in itertools.count():
        first = number * size
        yield load.post("/v1/messages", [message(f"{name}{n // BURST}", n) for n in range(first, first + size)])
