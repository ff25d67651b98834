"""Connections before there is a request: slow and large headers, and too many at once."""

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from unittest.mock import Mock

import httpx2
import pytest
import uvicorn
from uvicorn.server import ServerState

from turntake import TurnTake
from turntake.http.connections import (
    WAITING_REQUESTS,
    LimitedConnection,
    Limits,
    most_connections,
    raise_file_limit,
)
from turntake.http.options import HttpOptions
from turntake.http.server import Server, listen, url_of
from turntake.testing.clock import VirtualClock

HEALTHY = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Guarded:
    """A server with limits, and a clock that only the test moves."""

    def __init__(self, url: str, port: int, clock: VirtualClock, limits: Limits) -> None:
        self.url, self.port, self.clock, self.limits = url, port, clock, limits

    async def opened(self, *pieces: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return reader, writer

    async def said(self, *pieces: bytes) -> bytes:
        """What the server says to these bytes until it closes the connection."""
        reader, writer = await self.opened(*pieces)
        try:
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()

    async def is_alive(self) -> bool:
        async with httpx2.AsyncClient() as client:
            return (await client.get(f"{self.url}/healthz")).status_code == 200


@asynccontextmanager
async def guarded(**options: int) -> AsyncIterator[Guarded]:
    clock = VirtualClock()
    ready = asyncio.Event()
    app = TurnTake("memory://", role="accept").asgi()
    limits = Limits(HttpOptions(**options), clock)
    server = Server(app, 500, ready.set, app.state.events.close, is_guest=True, limits=limits)
    with listen("127.0.0.1", 0) as bound:
        running = asyncio.create_task(server.serve(sockets=[bound]))
        await asyncio.wait_for(ready.wait(), 20)
        try:
            yield Guarded(url_of(bound), bound.getsockname()[1], clock, limits)
        finally:
            server.stop()
            await asyncio.wait_for(running, 20)


async def until_read(guard: Guarded) -> None:
    """Whatever was sent before has been read: a whole request and its answer went by on another connection."""
    assert await guard.is_alive()


@pytest.mark.parametrize(
    "pieces",
    [
        (b"GET /heal",),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ",),
        (b"GET /healthz HTTP/1.1\r\n", b"Host: x\r\n", b"X-B: 1\r\n"),
    ],
    ids=["in the first line", "in a header", "line by line"],
)
async def test_headers_that_do_not_end_are_cut_after_their_time(pieces: tuple[bytes, ...]) -> None:
    """However they trickle in; the time is that of all headers together."""
    async with guarded(header_ms=10_000) as guard:
        reader, writer = await guard.opened(*pieces)
        await until_read(guard)
        await guard.clock.advance(9_999)
        writer.write(b"x")
        await until_read(guard)
        assert not reader.at_eof()
        await guard.clock.advance(1)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b"did not arrive within 10000 ms" in answer
        assert await guard.is_alive()


async def test_a_connection_that_says_nothing_is_closed_without_a_word() -> None:
    """A browser opens such connections in advance, and would take an answer for that to its next request."""
    async with guarded(header_ms=10_000) as guard:
        reader, writer = await guard.opened()
        await until_read(guard)
        await guard.clock.advance(10_000)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_the_second_request_of_a_connection_has_its_own_time() -> None:
    """Empty lines between requests are no way around it."""
    async with guarded(header_ms=10_000) as guard:
        reader, writer = await guard.opened(HEALTHY)
        assert (await reader.readuntil(b'{"status":"ok"}')).startswith(b"HTTP/1.1 200 ")
        await guard.clock.advance(9_000)
        writer.write(b"\r\n")
        await until_read(guard)
        await guard.clock.advance(9_000)
        writer.write(b"\r\n")
        await until_read(guard)
        await guard.clock.advance(1_000)
        assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_a_large_request_behind_another_ends_the_connection() -> None:
    """An answer may be on its way, and a second one must not be written into it."""
    async with guarded() as guard:
        reader, writer = await guard.opened(HEALTHY + b"GET / HTTP/1.1\r\nX-A: " + b"a" * 20_000 + b"\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 20)).count(b"HTTP/1.1 ") <= 1
        writer.close()
        assert await guard.is_alive()


@pytest.mark.parametrize(
    "pieces",
    [
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ", b"a" * 20_000, b"\r\n\r\n"),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ", *[b"a" * 1_000] * 20),
        (b"GET /healthz?", b"a" * 20_000, b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X: y\r\n" * 100, b"\r\n"),
    ],
    ids=["one header", "one that never ends", "the address", "many fields"],
)
async def test_large_headers_are_refused(pieces: tuple[bytes, ...]) -> None:
    """16 KiB and 100 fields; whoever sends more is told so."""
    async with guarded() as guard:
        answer = await guard.said(*pieces)
        assert b"HTTP/1.1 431 Request Header Fields Too Large\r\n" in answer
        assert b"over 16384 bytes or 100 fields" in answer
        assert b"connection: close" in answer
        assert await guard.is_alive()


async def test_headers_just_below_the_limits_are_taken() -> None:
    async with guarded() as guard:
        head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        large = await guard.said(head, b"X-A: ", b"a" * 16_000, b"\r\n\r\n")
        many = await guard.said(head, b"X: y\r\n" * 98, b"\r\n")
        assert large.startswith(b"HTTP/1.1 200 ")
        assert many.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("hosts", [b"Host: 127.0.0.1\r\nHost: evil.example\r\n", b"Host: " + b"a" * 256 + b"\r\n"])
async def test_there_is_one_host_and_it_is_short(hosts: bytes) -> None:
    async with guarded() as guard:
        assert (await guard.said(b"GET /healthz HTTP/1.1\r\n" + hosts + b"\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_a_body_may_be_larger_than_headers() -> None:
    """Its bytes are not counted as headers, in whatever pieces they come."""
    async with guarded(header_bytes=1_024) as guard:
        body = b'{"conversation": "ana", "id": "1", "text": "%s"}' % (b"x" * 5_000)
        head = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        whole = await guard.said(head % len(body) + body)
        parted = await guard.said(head % len(body), body[:2_000], body[2_000:])
        reader, writer = await guard.opened(head % len(body) + body[:2_000])
        for piece in (body[2_000:4_000], body[4_000:]):
            await until_read(guard)
            writer.write(piece)
        begun = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        assert begun.startswith(b"HTTP/1.1 202 ")
        assert whole.startswith(b"HTTP/1.1 202 ")
        assert parted.startswith(b"HTTP/1.1 202 ")


CHUNKED = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
MESSAGE = b'{"conversation": "ana", "id": "1", "text": "hi"}'
CHUNKED_MESSAGE = CHUNKED + b"%x\r\n%s\r\n0\r\n" % (len(MESSAGE), MESSAGE)


@pytest.mark.parametrize("pieces", [1, 2], ids=["in one piece", "in pieces"])
async def test_what_follows_a_body_is_not_among_the_headers(pieces: int) -> None:
    """A proxy that checks headers does not look there: neither a key nor anything else counts in a trailer."""
    async with guarded() as guard:
        trailer = b"X-Forwarded-For: 192.0.2.1\r\nConnection: close\r\n\r\n"
        whole = CHUNKED_MESSAGE + trailer
        cut = len(whole) if pieces == 1 else len(CHUNKED) + 10
        reader, writer = await guard.opened(whole[:cut])
        await until_read(guard)
        writer.write(whole[cut:])
        assert (await asyncio.wait_for(reader.readline(), 20)).startswith(b"HTTP/1.1 202 ")
        writer.close()


@pytest.mark.parametrize("trailer", [b"X-A: y\r\n" * 2_500, b"X-A: " + b"y" * 19_995], ids=["many", "one"])
async def test_what_follows_a_body_is_bounded_as_headers_are(trailer: bytes) -> None:
    async with guarded() as guard:
        reader, writer = await guard.opened(CHUNKED_MESSAGE)
        for piece in (trailer[:10_000], trailer[10_000:]):
            await until_read(guard)
            writer.write(piece)
        assert await asyncio.wait_for(reader.read(), 20) == b""  # the request was on its way, and is not answered
        writer.close()


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"


@pytest.mark.parametrize("cut", [20, 60, 250, 300, 1_000])
async def test_a_request_that_offers_http_2_is_read_with_its_body(cut: int) -> None:
    """Java's client and `curl --http2` offer it with every request. Without its body, an answer would be lost."""
    async with guarded() as guard:
        head = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: %d\r\n\r\n" % (OFFER, len(MESSAGE))
        whole = (head + MESSAGE) + HEALTHY.replace(b"\r\n\r\n", b"\r\n" + OFFER + b"\r\n") + HEALTHY
        reader, writer = await guard.opened(whole[:cut])
        await until_read(guard)
        writer.write(whole[cut:])
        assert (await asyncio.wait_for(reader.readline(), 20)).startswith(b"HTTP/1.1 202 ")
        for _ in range(2):
            await asyncio.wait_for(reader.readuntil(b'{"status":"ok"}'), 20)
        writer.close()


async def test_what_follows_the_last_request_of_a_connection_is_passed_over() -> None:
    """Also if that request offers another protocol: it is answered all the same."""
    async with guarded() as guard:
        for offer in (b"Connection: close\r\n", b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n"):
            last = HEALTHY.replace(b"\r\n\r\n", b"\r\n" + offer + b"\r\n")
            assert (await guard.said(last + b"and more")).startswith(b"HTTP/1.1 200 ")


async def test_a_tunnel_is_refused() -> None:
    async with guarded() as guard:
        assert (await guard.said(b"CONNECT /v1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        assert await guard.is_alive()


async def test_as_many_requests_as_a_client_may_need_wait_behind_the_first() -> None:
    async with guarded() as guard:
        reader, writer = await guard.opened(HEALTHY * (1 + WAITING_REQUESTS))
        for _ in range(1 + WAITING_REQUESTS):
            await asyncio.wait_for(reader.readuntil(b'{"status":"ok"}'), 20)
        writer.close()


async def test_a_flood_of_requests_on_one_connection_ends_it() -> None:
    """Each that waits takes a hundred times the memory of its bytes."""
    async with guarded() as guard:
        for request in (HEALTHY, HEALTHY.replace(b"\r\n\r\n", b"\r\n" + OFFER + b"\r\n")):
            reader, writer = await guard.opened(request * 1_000)
            with suppress(ConnectionResetError):  # it may be closed while there is more to read
                assert (await asyncio.wait_for(reader.read(), 20)).count(b"HTTP/1.1 200 ") <= 100
            writer.close()
        assert await guard.is_alive()


async def test_a_connection_too_many_is_told_to_come_back(caplog: pytest.LogCaptureFixture) -> None:
    """One log line says so, however many they are; once there is room again, the next is served."""
    async with guarded(connections=3) as guard:
        idle = [await guard.opened() for _ in range(3)]
        answers = [await guard.said() for _ in range(5)]
        assert {answer.partition(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 503 Service Unavailable"}
        assert b"retry-after: 1" in answers[0]
        lines = [record for record in caplog.records if record.message == "Too many connections are open"]
        assert len(lines) == 1
        await guard.clock.advance(60_000)
        lines = [record for record in caplog.records if record.message == "Too many connections are open"]
        assert [getattr(record, "times", None) for record in lines] == [None, 4]
        for reader, writer in idle:
            assert await asyncio.wait_for(reader.read(), 20) == b""  # their time was over as well
            writer.close()
        assert await guard.is_alive()


async def test_a_crowd_of_slow_idle_and_large_connections_leaves_others_served() -> None:
    """And once it is gone, nothing of it is kept; `python -m bench.crowd` measures the same at full size."""
    async with guarded(header_ms=10_000) as guard:
        crowd = [await guard.opened() for _ in range(50)]
        crowd += [await guard.opened(b"GET / HTTP/1.1\r\nX-A: a") for _ in range(50)]
        large = [await guard.opened(b"GET / HTTP/1.1\r\nX-A: " + b"a" * 65_536) for _ in range(50)]
        for reader, writer in large:
            assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 431 ")
            writer.close()
        for _ in range(20):
            assert await guard.is_alive()
        assert len(guard.limits._since) == 100
        await guard.clock.advance(10_000)
        for reader, writer in crowd:
            await asyncio.wait_for(reader.read(), 20)
            writer.close()
        assert not guard.limits._since
        assert await guard.is_alive()


class Idling:
    """A connection on a loop whose time the test sets, and whose requests it answers itself."""

    def __init__(self) -> None:
        self.transport = Mock(is_closing=Mock(return_value=False))
        self.loop = Mock(time=Mock(return_value=100.0))
        config = uvicorn.Config(TurnTake("memory://").asgi(), http="httptools", timeout_keep_alive=5)
        self.connection = LimitedConnection(
            Limits(clock=VirtualClock()), config=config, server_state=ServerState(), app_state={}, _loop=self.loop
        )
        self.connection.connection_made(self.transport)

    def ask(self, data: bytes) -> None:
        self.connection.data_received(data)
        self.loop.create_task.call_args.args[0].close()  # nobody runs the app

    def answer(self) -> None:
        self.connection.cycle.response_complete = True
        self.connection.on_response_complete()

    def fire(self, at: float) -> None:
        """The timer that was set last is over."""
        self.loop.time.return_value = at
        self.loop.call_later.call_args.args[1]()

    @property
    def timers(self) -> list[float]:
        return [call.args[0] for call in self.loop.call_later.call_args_list]

    @property
    def is_closed(self) -> bool:
        return bool(self.transport.close.called)


def test_one_timer_serves_all_requests_of_a_connection() -> None:
    """It is not set and cancelled with each of them, and still gives an idle connection its five seconds, no more."""
    idling = Idling()
    for at in (100.0, 101.0, 103.0):
        idling.loop.time.return_value = at
        idling.ask(HEALTHY)
        idling.answer()
    assert idling.timers == [5]
    idling.fire(at=105.0)
    assert idling.timers == [5, 3]
    assert not idling.is_closed
    idling.fire(at=108.0)
    assert idling.is_closed


def test_a_connection_is_not_idle_while_a_request_is_under_way() -> None:
    """The timer ends then, and the answer sets it again."""
    idling = Idling()
    idling.ask(HEALTHY)
    idling.answer()
    idling.ask(HEALTHY)
    idling.fire(at=200.0)
    assert not idling.is_closed
    idling.answer()
    assert idling.timers == [5, 5]
    idling.fire(at=205.0)
    assert idling.is_closed


@pytest.mark.parametrize("rest", [b"x", b"x" * 8, b"x" * 8 + b"GET"])
def test_the_rest_of_a_refused_body_does_not_keep_the_connection(rest: bytes) -> None:
    """Every byte of such a body would give it five seconds more."""
    idling = Idling()
    idling.ask(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
    idling.answer()
    idling.loop.time.return_value = 104.0
    idling.connection.data_received(rest)
    idling.fire(at=105.0)
    assert idling.is_closed


def test_what_followed_a_body_does_not_count_for_the_next_request() -> None:
    idling = Idling()
    idling.ask(CHUNKED_MESSAGE)
    idling.connection.data_received(b"X-A: " + b"y" * 16_000 + b"\r\n\r\n")
    idling.answer()
    idling.connection.data_received(b"GET / HTTP/1.1\r\nX-A: " + b"y" * 1_000)
    assert not idling.is_closed


def test_a_request_after_a_refused_body_keeps_the_connection() -> None:
    idling = Idling()
    idling.ask(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
    idling.answer()
    idling.connection.data_received(b"x" * 8)
    idling.connection.data_received(b"GET / HTTP/1.1\r\n")
    idling.fire(at=105.0)
    assert not idling.is_closed


def writing(clock: VirtualClock) -> tuple[LimitedConnection, Mock]:
    """A connection whose client does not read as fast as it is answered, and its transport."""
    transport = Mock(is_closing=Mock(return_value=False), get_write_buffer_size=Mock(return_value=100_000))
    config = uvicorn.Config(TurnTake("memory://").asgi(), http="httptools")
    connection = LimitedConnection(Limits(clock=clock), config=config, server_state=ServerState(), app_state={})
    connection.connection_made(transport)
    connection._limits.end(connection)
    connection.pause_writing()
    return connection, transport


async def test_whoever_reads_nothing_of_an_answer_is_cut_off() -> None:
    """However slow, whoever reads on is not."""
    clock = VirtualClock()
    _, transport = writing(clock)
    await clock.advance(29_000)
    transport.get_write_buffer_size.return_value = 99_999
    await clock.advance(30_999)
    assert not transport.abort.called
    await clock.advance(1)
    assert transport.abort.called


async def test_an_answer_that_is_read_in_the_end_keeps_its_connection() -> None:
    clock = VirtualClock()
    connection, transport = writing(clock)
    await clock.advance(29_000)
    connection.resume_writing()
    await clock.advance(60_000)
    assert not transport.abort.called


async def test_nobody_waits_for_a_client_who_left() -> None:
    """Neither for the rest of its headers nor for it to read on."""
    clock = VirtualClock()
    connection, transport = writing(clock)
    connection._limits.begin(connection)
    connection.connection_lost(None)
    assert not connection._limits._since
    await clock.advance(60_000)
    assert not transport.abort.called


@contextmanager
def file_limit(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_process_opens_as_many_files_as_it_may() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with file_limit(256):
        assert raise_file_limit() == (None if hard == resource.RLIM_INFINITY else hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard


@pytest.mark.parametrize(
    ("wanted", "files", "most"),
    [(10_000, 1_048_576, 10_000), (10_000, 1_024, 768), (10_000, 64, 32), (5, 64, 5), (9, 1, 1)],
)
def test_connections_leave_files_for_everything_else(wanted: int, files: int, most: int) -> None:
    """The store, the agent and the platforms are reached by files too."""
    assert most_connections(wanted, files) == most
    assert Limits(HttpOptions(connections=wanted), files=files).connections == most
