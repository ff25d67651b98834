"""Limits on how much a request may send, and on how long it may take."""

import asyncio
import json
import socket
from collections.abc import Iterator
from itertools import cycle

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from harness.servers import Served, serving, talking
from turntake import Rules, TurnTake
from turntake.errors import Problem
from turntake.http import limits
from turntake.http.limits import DRAIN_FACTOR, ArrivingBytes, BodyLimit
from turntake.testing.clock import VirtualClock

GOOD = {"conversation": "ana", "id": "1", "text": "hi"}


def accepting() -> TurnTake:
    return TurnTake("memory://", rules=Rules(silence_ms=30_000), role="accept")


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving(accepting(), receive_ms=50) as server:
        yield server


def said(server: Served, *pieces: bytes) -> bytes:
    """What the server says to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


HEAD = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def is_alive(server: Served) -> bool:
    """It takes a message, which is sent in one piece, so that a busy machine cannot make its body late."""
    body = json.dumps(GOOD).encode()
    request = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    return said(server, request).startswith(b"HTTP/1.1 202 ")


@pytest.mark.parametrize(
    "pieces",
    [
        (HEAD, b"Content-Length: 100\r\n\r\n", b'{"conver'),
        (HEAD, b"Content-Length: 100\r\n\r\n"),
        (HEAD, b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\n[{}\r\n"),
    ],
    ids=["trickles", "never begins", "never ends"],
)
def test_a_body_that_trickles_is_cut(server: Served, pieces: tuple[bytes, ...]) -> None:
    """The sender is told, the connection ends, and the server serves others."""
    answer = said(server, *pieces)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in answer
    assert b"did not arrive within 50 ms; nothing was accepted" in answer
    assert is_alive(server)


def test_two_megabytes_are_refused(server: Served) -> None:
    """Whether the length is announced or not; the sender gets to read why."""
    body = b"x" * 2_000_000
    for content in (body, iter([body[:1_000_000], body[1_000_000:]])):
        response = httpx2.post(f"{server.url}/v1/messages", content=content)
        assert response.status_code == 413
        assert "1048576 bytes" in response.json()["detail"]
        assert response.headers["connection"] == "close"
    assert is_alive(server)


def test_an_absurd_length_is_refused_unread(server: Served) -> None:
    """Nobody waits for a terabyte."""
    answer = said(server, HEAD, b"Content-Length: 1099511627776\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert is_alive(server)


def test_endless_chunks_are_refused(server: Served) -> None:
    """A body without an announced length has the same limit."""
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                connection.sendall(chunk)
        except OSError:
            pass
    assert is_alive(server)


def test_a_sender_who_leaves_is_forgotten(server: Served) -> None:
    """Half a body stores nothing."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"conver')
    assert is_alive(server)


def test_a_body_of_exactly_the_limit_is_read() -> None:
    """The limit is the last size that works."""
    with talking(accepting(), max_body_bytes=100) as client:
        assert client.post("/v1/messages", content=b" " * 100).status_code == 400
        assert client.post("/v1/messages", content=b" " * 101).status_code == 413


async def test_a_body_without_an_end_is_read_only_so_far() -> None:
    """Far enough that a sender of a little too much gets its answer, and whoever never stops is cut off."""
    chunks = 0

    async def receive() -> Message:
        nonlocal chunks
        chunks += 1
        assert chunks < 100, "read for ever"
        return {"type": "http.request", "body": b"x" * 10, "more_body": True}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("it is too long to be handed on")

    async def send(message: Message) -> None:
        raise AssertionError("a Problem is raised instead")

    scope = {"type": "http", "headers": [(b"transfer-encoding", b"chunked")]}
    with pytest.raises(Problem) as raised:
        await BodyLimit(app, VirtualClock(), max_body_bytes=10)(scope, receive, send)
    assert raised.value.status == 413
    assert chunks == DRAIN_FACTOR + 1


async def test_what_came_before_the_sender_left_is_not_handed_on() -> None:
    """It may read like a whole body, and is not what was sent."""
    messages: list[Message] = [
        {"type": "http.request", "body": b'{"conversation": "ana", "id": "1", "text": "hi"}', "more_body": True},
        {"type": "http.disconnect"},
    ]
    bodies: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        bodies.append(await receive())

    async def send(message: Message) -> None:
        raise AssertionError("nobody is there to read it")

    scope = {"type": "http", "headers": [(b"transfer-encoding", b"chunked")]}
    await BodyLimit(app, VirtualClock())(scope, receive, send)
    assert (bodies, messages) == ([], [])


async def test_a_server_that_stops_while_a_body_is_late_is_not_answered() -> None:
    """Both cancel the request at once; the server's order must go on, and not end as a 408 to nobody."""
    clock = VirtualClock()

    async def receive() -> Message:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            request.cancel()
            raise
        raise AssertionError("never reached")

    async def send(message: Message) -> None:
        raise AssertionError("there is nothing to answer")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("there is no body to hand on")

    scope = {"type": "http", "headers": [(b"content-length", b"10")]}
    request = asyncio.create_task(BodyLimit(app, clock, receive_ms=50)(scope, receive, send))
    await clock.advance(50)
    with pytest.raises(asyncio.CancelledError):
        await request


async def test_bodies_that_arrive_at_once_take_so_much_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stranger could have thousands of large ones on their way, to any endpoint and in small pieces. Small ones are
    read all the same."""
    monkeypatch.setattr(limits, "MOST_ARRIVING_BYTES", 300_000)
    taken: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        taken.append(len((await receive())["body"]))

    async def send(message: Message) -> None: ...

    clock = VirtualClock()
    arriving = ArrivingBytes(clock)
    guards = cycle(BodyLimit(app, clock, arriving=arriving) for _ in range(2))

    def request(size: int) -> tuple[asyncio.Event, asyncio.Task[None]]:
        ended = asyncio.Event()
        pieces = [b"x" * 20_000] * (size // 20_000)

        async def receive() -> Message:
            if len(pieces) < 2:
                await ended.wait()
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        scope = {"type": "http", "headers": [(b"transfer-encoding", b"chunked")]}
        return ended, asyncio.create_task(next(guards)(scope, receive, send))

    first, one = request(200_000)
    _, refused = request(200_000)
    small, other = request(60_000)
    with pytest.raises(Problem, match="Too many large bodies") as raised:
        await asyncio.wait_for(refused, 5)
    assert raised.value.status == 503
    assert [record.message for record in caplog.records] == ["Too many large bodies arrive at once"]
    small.set()
    first.set()
    await asyncio.gather(one, other)
    last, again = request(200_000)
    last.set()
    await again
    assert sorted(taken) == [60_000, 200_000, 200_000]
    assert arriving._total == 0


async def test_once_its_body_is_there_a_request_may_take_its_time() -> None:
    clock = VirtualClock()
    pieces = [b"hel", b"lo"]
    bodies: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await clock.sleep(1_000)
        bodies.append(await receive())

    async def send(message: Message) -> None: ...

    scope = {"type": "http", "headers": [(b"content-length", b"5")]}
    request = asyncio.create_task(BodyLimit(app, clock, receive_ms=50)(scope, receive, send))
    await clock.advance(1_000)
    await request
    assert [message["body"] for message in bodies] == [b"hello"]
