"""A request and its answer: one write for a plain answer, and the same answers as ever for all others."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import ServerState

from turntake.http.connections import LimitedConnection, Limits
from turntake.http.limits import BodyLimit
from turntake.http.problem import Problems
from turntake.testing.clock import VirtualClock

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
LENGTH = (b"content-length", b"5")


class Wire(asyncio.Transport):
    """The other end: each write as it came."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False
        self.is_read = True

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Connected:
    """A connection to an app, with the headers that every answer has."""

    def __init__(self, app: ASGIApp) -> None:
        self.wire, self.state = Wire(), ServerState()
        self.state.default_headers = [(b"date", b"today")]
        config = uvicorn.Config(app, ws="none", log_config=None, access_log=False)
        self.connection = LimitedConnection(
            Limits(clock=VirtualClock()), config=config, server_state=self.state, app_state={}
        )
        self.connection.connection_made(self.wire)

    async def ask(self, request: bytes) -> list[bytes]:
        """What is written until the app is done."""
        self.connection.data_received(request)
        await asyncio.gather(*self.state.tasks)
        return self.wire.writes


async def settled() -> None:
    """Everything has run that could."""
    await VirtualClock().advance(0)


def answering(*messages: Message) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    return app


def head(*headers: tuple[bytes, bytes], status: int = 202) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(piece: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": more}


async def test_head_and_body_leave_in_one_write() -> None:
    """Two would be two system calls here, and two packets that wake the caller."""
    connected = Connected(answering(head((b"content-type", b"text/plain"), LENGTH), body(b"hello")))
    answer = b"HTTP/1.1 202 Accepted\r\ndate: today\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello"
    assert await connected.ask(GET) == [answer]
    assert await connected.ask(GET) == [answer, answer]
    assert connected.state.total_requests == 2
    assert not connected.wire.is_closed


async def test_a_stream_begins_before_its_first_piece() -> None:
    """Whoever waits for events must see that the answer began, however long the first event takes."""
    goes_on = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(head())
        await goes_on.wait()
        await send(body(b""))

    connected = Connected(app)
    connected.connection.data_received(GET)
    await settled()
    assert connected.wire.writes == [b"HTTP/1.1 202 Accepted\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n"]
    goes_on.set()
    await asyncio.gather(*connected.state.tasks)
    assert connected.wire.writes[1:] == [b"0\r\n\r\n"]


@pytest.mark.parametrize("pieces", [(b"hel", b"lo"), (b"hello", b"")])
async def test_a_body_in_pieces_is_written_as_it_comes(pieces: tuple[bytes, bytes]) -> None:
    connected = Connected(answering(head(LENGTH), body(pieces[0], more=True), body(pieces[1])))
    assert (await connected.ask(GET))[1:] == list(pieces)
    assert not connected.wire.is_closed


async def test_a_head_request_has_no_body() -> None:
    connected = Connected(answering(head(LENGTH), body(b"hello")))
    written = b"".join(await connected.ask(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert written.endswith(b"content-length: 5\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "headers"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", [LENGTH]),
        (GET, [LENGTH, (b"connection", b"close")]),
    ],
    ids=["the caller", "the app"],
)
async def test_a_connection_ends_when_somebody_asked_for_that(
    request_: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    connected = Connected(answering(head(*headers), body(b"hello")))
    written = b"".join(await connected.ask(request_))
    assert written.count(b"connection: close\r\n") == 1
    assert written.endswith(b"\r\n\r\nhello")
    assert connected.wire.is_closed
    assert connected.connection.timeout_keep_alive_task is None


async def test_an_empty_answer_is_a_whole_one() -> None:
    connected = Connected(answering(head((b"content-length", b"0")), {"type": "http.response.body"}))
    assert await connected.ask(GET) == [b"HTTP/1.1 202 Accepted\r\ndate: today\r\ncontent-length: 0\r\n\r\n"]


@pytest.mark.parametrize("piece", [b"hell", b"hello!"], ids=["shorter", "longer"])
async def test_an_answer_of_another_length_than_it_says_is_an_error(piece: bytes) -> None:
    """What follows on the connection would be taken for the rest of it, so it is closed."""
    connected = Connected(answering(head(LENGTH), body(piece)))
    await connected.ask(GET)
    assert connected.wire.is_closed


@pytest.mark.parametrize(
    "header",
    [
        (b"x-a", b"1\r\nx-b: 2"),
        (b"x-a", b"1\nx-b: 2"),  # many programs take either for the end of a line
        (b"x-a", b"1\rx-b: 2"),
        (b"x-a: 1\r\nx-b", b"2"),
        (b"", b"1"),
    ],
)
async def test_no_header_brings_another_with_it(header: tuple[bytes, bytes]) -> None:
    connected = Connected(answering(head(header, LENGTH), body(b"hello")))
    written = b"".join(await connected.ask(GET))
    assert written.startswith(b"HTTP/1.1 500 ")
    assert b"x-b" not in written


async def test_an_app_that_fails_between_head_and_body_is_answered_for() -> None:
    """Its head has not left yet, so the caller learns that it failed."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(head(LENGTH))
        raise ValueError

    (written,) = await Connected(Problems(app)).ask(GET)
    assert written.startswith(b"HTTP/1.1 500 ")
    assert written.count(b"HTTP/1.1 ") == 1


async def test_a_second_answer_is_an_error() -> None:
    """As any other server says it; the caller would take it for the answer to its next request."""
    answer = (head(LENGTH), body(b"hello"))
    connected = Connected(answering(*answer, *answer))
    assert len(await connected.ask(GET)) == 1
    assert connected.wire.is_closed


async def test_nothing_is_written_to_a_caller_who_left() -> None:
    written = await asked(
        answering(head(LENGTH), body(b"hello")), GET, lambda connected: connected.connection.connection_lost(None)
    )
    assert written == b""


async def test_whoever_waits_for_the_caller_to_leave_hears_of_the_answer() -> None:
    """Nothing more comes of this request, so that a task that watches for it ends."""

    heard: list[Message] = []

    async def watch(receive: Receive) -> None:
        heard.append(await receive())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        watching = asyncio.create_task(watch(receive))
        await settled()
        await answering(head(LENGTH), body(b"hello"))(scope, receive, send)
        await settled()
        watching.cancel()

    await asked(BodyLimit(app, VirtualClock()), POST)
    assert heard == [{"type": "http.disconnect"}]


async def test_nobody_is_told_to_go_on_after_the_answer() -> None:
    """`100 Continue` there would be taken for the answer to the next request."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answering(head(LENGTH), body(b"hello"))(scope, receive, send)
        await receive()

    written = await asked(app, POST.replace(b"Host", b"Expect: 100-continue\r\nHost"))
    assert written.startswith(b"HTTP/1.1 202 ")
    assert b"100 Continue" not in written


async def test_a_caller_who_reads_slowly_is_waited_for() -> None:
    connected = Connected(answering(head(LENGTH), body(b"hello")))
    connected.connection.pause_writing()
    connected.connection.data_received(GET)
    await settled()
    assert connected.wire.writes == []
    connected.connection.resume_writing()
    await asyncio.gather(*connected.state.tasks)
    assert b"".join(connected.wire.writes).endswith(b"hello")


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what it received, until the caller is heard no more."""
    message = await receive()
    assert not message["more_body"]
    await send(head((b"content-length", b"%d" % len(message["body"]))))
    await send(body(message["body"]))


async def asked(app: ASGIApp, request: bytes, before: Callable[[Connected], None] | None = None) -> bytes:
    connected = Connected(app)
    connected.connection.data_received(request)
    if before is not None:
        before(connected)
    await asyncio.gather(*connected.state.tasks)
    return b"".join(connected.wire.writes)


async def test_a_body_that_is_here_already_needs_no_timer() -> None:
    clock = VirtualClock()
    limit = BodyLimit(echo, clock)
    assert (await asked(limit, POST)).endswith(b"\r\n\r\nhello")
    assert (await asked(limit, GET)).endswith(b"content-length: 0\r\n\r\n")
    assert not limit._deadlines._timer_of


async def test_a_body_that_comes_later_is_waited_for_with_one() -> None:
    limit = BodyLimit(echo, VirtualClock())
    connected = Connected(limit)
    connected.connection.data_received(POST[:-2])
    await settled()
    assert limit._deadlines._timer_of
    assert (await connected.ask(POST[-2:]))[-1].endswith(b"hello")


async def test_a_body_that_is_here_and_too_large_is_refused() -> None:
    written = await asked(Problems(BodyLimit(echo, VirtualClock(), max_body_bytes=4)), POST)
    assert written.startswith(b"HTTP/1.1 413 ")


async def test_a_caller_who_left_before_the_app_began_is_not_served() -> None:
    """Nobody would read the answer, and it may send again."""
    calls = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        calls.append(await receive())

    await asked(BodyLimit(app, VirtualClock()), POST, lambda connected: connected.connection.connection_lost(None))
    assert calls == []


LARGE = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000


async def test_while_a_large_body_is_worked_on_the_connection_is_read() -> None:
    """uvicorn stops to read beyond 64 KiB; the caller's leaving would not be noticed."""
    connected: Connected

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert connected.wire.is_read
        await echo(scope, receive, send)

    connected = Connected(BodyLimit(app, VirtualClock()))
    (answer,) = await connected.ask(LARGE)
    assert answer.endswith(b"x" * 100_000)


async def test_after_a_large_body_that_nobody_took_the_connection_is_read() -> None:
    connected = Connected(answering(head(LENGTH), body(b"hello")))
    connected.connection.data_received(LARGE)
    assert not connected.wire.is_read
    await asyncio.gather(*connected.state.tasks)
    assert connected.wire.is_read


async def test_after_its_body_a_request_only_hears_that_the_caller_left() -> None:
    heard: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.extend([await receive(), await receive()])

    connected = Connected(BodyLimit(app, VirtualClock()))
    connected.connection.data_received(POST)
    await settled()
    assert heard == []
    connected.connection.connection_lost(None)
    await asyncio.gather(*connected.state.tasks)
    assert [message["type"] for message in heard] == ["http.request", "http.disconnect"]


async def test_middleware_may_put_another_body_in_front() -> None:
    """What it gives is what counts, and not what the connection has."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def another() -> Message:
            return {"type": "http.request", "body": (await receive())["body"].upper(), "more_body": False}

        await BodyLimit(echo, VirtualClock())(scope, another, send)

    assert (await asked(app, POST)).endswith(b"\r\n\r\nHELLO")


async def test_requests_one_behind_the_other_are_answered_in_order() -> None:
    connected = Connected(BodyLimit(echo, VirtualClock()))
    connected.connection.data_received(POST + POST.replace(b"hello", b"world"))
    while connected.state.tasks:
        await asyncio.gather(*connected.state.tasks)
        await settled()
    assert [write[-5:] for write in connected.wire.writes] == [b"hello", b"world"]
