"""A TCP proxy between clients and one server that does to connections what networks do."""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Self

HOST = "127.0.0.1"
CHUNK = 65_536
Way = Literal["requests", "replies"]


class Link:
    """A client's connection, and the one made to the server for it."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server = socket.socket()
        self.server.setblocking(False)
        self.is_torn = False

    def close(self, *, is_reset: bool) -> None:
        for end in (self.client, self.server):
            if is_reset and end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()


class Proxy:
    """Lives on an event loop; its commands may come from any thread, and no byte passes against them afterwards.

    Connections that lost bytes are reset before the way opens again: TCP never goes on after a hole.
    `on_lost` is told of everything that a black hole swallows; `sleep` is how a delay passes.
    """

    def __init__(
        self,
        server_port: int,
        on_lost: Callable[[Way, bytes], None] = lambda way, data: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.port = 0
        self.connections = 0
        self.dropped_replies = 0
        self._server_port = server_port
        self._on_lost = on_lost
        self._sleep = sleep
        self._links: dict[asyncio.Task[None], Link] = {}
        self._listener: socket.socket | None = None
        self._lost: frozenset[Way] = frozenset()
        self._delay_ms = 0
        self._replies_to_drop = 0

    def lead_to(self, server_port: int) -> None:
        """New connections go to another server, as when a name is given another address; those there are stay."""
        self._server_port = server_port

    def origin(self, port: int) -> int | None:
        """From which port the client speaks whose connection to the server begins at `port`."""
        for link in self._links.values():
            if link.server.fileno() >= 0 and link.server.getsockname()[1] == port:
                return int(link.client.getpeername()[1])
        return None

    def heal(self) -> None:
        """Everything passes again."""
        self._do(self._heal)

    def cut(self) -> None:
        """Resets all connections and refuses new ones, until healed."""
        self._do(self._cut)

    def blackhole(self) -> None:
        """Connections are made and stay, but nothing comes through, not even that one was closed."""
        self._do(lambda: self._lose(frozenset(("requests", "replies"))))

    def one_way(self, lost: Way) -> None:
        """As a black hole, but the other way works."""
        self._do(lambda: self._lose(frozenset((lost,))))

    def delay(self, ms: int) -> None:
        """Whatever passes is held up so long, each way."""
        self._delay_ms = ms

    def drop_replies(self, count: int) -> None:
        """The next replies are lost and their connections reset: what was asked for has happened, nobody is told."""
        self._replies_to_drop = count

    def drop_next_reply(self) -> None:
        self.drop_replies(1)

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._listen()

    async def close(self) -> None:
        links = list(self._links)
        self._cut()
        await asyncio.gather(*links, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _do(self, command: Callable[[], None]) -> None:
        async def done() -> None:
            command()

        if threading.get_ident() == self._thread:
            command()
        else:
            asyncio.run_coroutine_threadsafe(done(), self._loop).result(20)

    def _heal(self) -> None:
        self._delay_ms = self._replies_to_drop = 0
        self._lose(frozenset())
        if self._listener is None:
            self._listen()

    def _cut(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        self._reset(lambda _: True)

    def _lose(self, lost: frozenset[Way]) -> None:
        if self._lost - lost:
            self._reset(lambda link: link.is_torn)
        self._lost = lost

    def _reset(self, is_meant: Callable[[Link], bool]) -> None:
        for task, link in self._links.items():
            if is_meant(link):
                task.cancel()

    def _listen(self) -> None:
        self._listener = socket.create_server((HOST, self.port), backlog=1024)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:  # it has left already
            return
        client.setblocking(False)
        self.connections += 1
        link = Link(client)
        task = self._loop.create_task(self._carry(link))
        self._links[task] = link
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        """Also of one that was cut before it began."""
        self._links.pop(task).close(is_reset=True)

    async def _carry(self, link: Link) -> None:
        is_reset = True
        try:
            await self._loop.sock_connect(link.server, (HOST, self._server_port))
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass(link, "requests", link.client, link.server))
                ways.create_task(self._pass(link, "replies", link.server, link.client))
            is_reset = False
        except* OSError:
            pass
        finally:
            link.close(is_reset=is_reset)

    async def _pass(self, link: Link, way: Way, source: socket.socket, sink: socket.socket) -> None:
        while data := await self._received(link, way, source):
            if way == "replies" and self._replies_to_drop:
                self._replies_to_drop -= 1
                self.dropped_replies += 1
                raise ConnectionResetError
            await self._loop.sock_sendall(sink, data)
        sink.shutdown(socket.SHUT_WR)

    async def _received(self, link: Link, way: Way, source: socket.socket) -> bytes:
        """The next bytes that are not lost on the way; none at the end."""
        while True:
            try:
                data = await self._loop.sock_recv(source, CHUNK)
            except OSError:
                if way not in self._lost:
                    raise
                data = b""
            if self._delay_ms:
                await self._sleep(self._delay_ms / 1000)
            if way not in self._lost:
                return data
            link.is_torn = True
            self._on_lost(way, data)
            if not data:
                await asyncio.Event().wait()  # the end is lost too


@contextmanager
def proxying(server_port: int) -> Iterator[Proxy]:
    """A proxy on an event loop of its own, in a thread."""
    proxy, loop = Proxy(server_port), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.open(), loop).result(20)
        yield proxy
        asyncio.run_coroutine_threadsafe(proxy.close(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
