"""The proxy does what it says, or chaos would prove nothing."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from redis import ConnectionError as Lost
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness.databases import Valkey, until
from harness.proxy import HOST, Proxy, Way, proxying

Talk = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PATIENCE_S = 10


class Echo:
    """A server behind the proxy that says back what it hears and remembers it, and the connections made to it.

    It also notes what the proxy swallowed, and how long it held things up, of which nothing takes any time here.
    """

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.ends: asyncio.Queue[str] = asyncio.Queue()
        self.lost: asyncio.Queue[tuple[Way, bytes]] = asyncio.Queue()
        self.delays: list[float] = []
        self._talks: list[Talk] = []

    async def connect(self, proxy: Proxy) -> Talk:
        self._talks.append(await asyncio.open_connection(HOST, proxy.port))
        return self._talks[-1]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = "closed"
        try:
            while data := await reader.read(1000):
                self.heard.put_nowait(data)
                writer.write(data)
        except ConnectionResetError:
            end = "reset"
        self.ends.put_nowait(end)
        writer.close()

    def lose(self, way: Way, data: bytes) -> None:
        self.lost.put_nowait((way, data))

    async def pass_time(self, seconds: float) -> None:
        self.delays.append(seconds)

    async def close(self) -> None:
        for _, writer in self._talks:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@pytest.fixture
async def room() -> AsyncIterator[tuple[Proxy, Echo]]:
    """Both on the test's event loop."""
    echo = Echo()
    server = await asyncio.start_server(echo.answer, HOST)
    port = server.sockets[0].getsockname()[1]
    async with server, Proxy(port, echo.lose, echo.pass_time) as proxy, AsyncExitStack() as ends:
        ends.push_async_callback(echo.close)
        yield proxy, echo


async def say(talk: Talk, text: bytes) -> bytes:
    talk[1].write(text)
    return await asyncio.wait_for(talk[0].read(1000), PATIENCE_S)


async def lost(talk: Talk, text: bytes, echo: Echo) -> Way:
    """The way on which the text, or what came back, was swallowed."""
    talk[1].write(text)
    way, data = await asyncio.wait_for(echo.lost.get(), PATIENCE_S)
    assert data == text
    return way


async def test_without_a_fault_everything_passes(room: tuple[Proxy, Echo]) -> None:
    proxy, echo = room
    one, two = await echo.connect(proxy), await echo.connect(proxy)
    assert await say(one, b"hello") == b"hello"
    assert await say(two, b"you") == b"you"
    one[1].write(b"bye")
    one[1].write_eof()
    assert await one[0].read() == b"bye"
    assert await echo.ends.get() == "closed"
    assert proxy.connections == 2


async def test_much_passes_whole_and_in_order(room: tuple[Proxy, Echo]) -> None:
    proxy, echo = room
    reader, writer = await echo.connect(proxy)
    whole = b"".join(b"%07d" % number for number in range(100_000))
    writer.write(whole)
    assert await asyncio.wait_for(reader.readexactly(len(whole)), PATIENCE_S) == whole


async def test_a_cut_resets_and_refuses(room: tuple[Proxy, Echo]) -> None:
    proxy, echo = room
    talk = await echo.connect(proxy)
    assert await say(talk, b"hello") == b"hello"
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        await say(talk, b"are you there?")
    assert await echo.ends.get() == "reset"
    with pytest.raises(ConnectionRefusedError):
        await echo.connect(proxy)
    proxy.heal()
    assert await say(await echo.connect(proxy), b"again") == b"again"
    assert echo.heard.qsize() == 2


async def test_a_black_hole_swallows_both_ways(room: tuple[Proxy, Echo]) -> None:
    proxy, echo = room
    whole, torn = await echo.connect(proxy), await echo.connect(proxy)
    assert await say(whole, b"one") == b"one"
    proxy.blackhole()
    assert await lost(torn, b"two", echo) == "requests"
    assert await lost(await echo.connect(proxy), b"three", echo) == "requests"
    assert echo.heard.qsize() == 1
    proxy.heal()
    assert await say(whole, b"four") == b"four"
    with pytest.raises(ConnectionResetError):
        await say(torn, b"five")
    assert await say(await echo.connect(proxy), b"six") == b"six"


async def test_a_black_hole_swallows_the_end(room: tuple[Proxy, Echo]) -> None:
    proxy, echo = room
    talk = await echo.connect(proxy)
    assert await say(talk, b"one") == b"one"
    proxy.blackhole()
    talk[1].close()
    assert await asyncio.wait_for(echo.lost.get(), PATIENCE_S) == ("requests", b"")
    assert echo.ends.empty()
    proxy.heal()
    assert await asyncio.wait_for(echo.ends.get(), PATIENCE_S) == "reset"


async def test_one_way_loses_replies_only(room: tuple[Proxy, Echo]) -> None:
    proxy, echo = room
    talk = await echo.connect(proxy)
    proxy.one_way(lost="replies")
    assert await lost(talk, b"one", echo) == "replies"
    assert echo.heard.get_nowait() == b"one"
    proxy.one_way(lost="requests")
    with pytest.raises(ConnectionResetError):
        await say(talk, b"the way back is open again, but not for this connection")
    assert await lost(await echo.connect(proxy), b"two", echo) == "requests"
    assert echo.heard.empty()


async def test_dropped_replies_are_counted(room: tuple[Proxy, Echo]) -> None:
    proxy, echo = room
    proxy.drop_replies(2)
    for number in range(2):
        with pytest.raises(ConnectionResetError):
            await say(await echo.connect(proxy), b"%d" % number)
    assert await say(await echo.connect(proxy), b"2") == b"2"
    assert [echo.heard.get_nowait() for _ in range(3)] == [b"0", b"1", b"2"]
    assert proxy.dropped_replies == 2


async def test_a_delay_counts_each_way(room: tuple[Proxy, Echo]) -> None:
    proxy, echo = room
    talk = await echo.connect(proxy)
    proxy.delay(100)
    assert await say(talk, b"hello") == b"hello"
    assert echo.delays == [0.1, 0.1]
    proxy.heal()
    assert await say(talk, b"hello") == b"hello"
    assert echo.delays == [0.1, 0.1]


def test_a_server_that_is_gone_resets() -> None:
    with socket.create_server((HOST, 0)) as nobody:
        port = nobody.getsockname()[1]
    with proxying(port) as proxy, socket.create_connection((HOST, proxy.port)) as client:
        client.settimeout(PATIENCE_S)
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_lost_reply_has_happened_once(tmp_path: Path) -> None:
    """As a client that does not try again sees it: an error, and yet the number is one higher."""
    with Valkey(tmp_path, is_safe=False) as server, proxying(server.port) as proxy:
        with Redis(HOST, proxy.port, retry=Retry(NoBackoff(), 0), socket_timeout=PATIENCE_S) as client:
            assert client.incr("count") == 1
            proxy.drop_next_reply()
            with pytest.raises(Lost):
                client.incr("count")
            assert proxy.dropped_replies == 1
            assert server.ask("GET", "count") == b"2"
            assert client.incr("count") == 3
            proxy.cut()
            with pytest.raises(Lost):
                client.incr("count")
            proxy.heal()
            assert client.incr("count") == 4
        until(lambda: server.ask("INFO", "clients")["connected_clients"] == 1)
