"""One connection that all calls share: each is sent at once, and the answers come in the order of the calls.

redis-py connects, logs in and chooses the database; from then on the socket is the line's, at less than half the CPU
a call. Whom a line fails asks again through redis-py, which knows of retries, failovers and every kind of error.
"""

import asyncio
from collections import deque
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as ConnectionLost

from turntake.buffer.redis.url import TIMEOUT_S, Client


class Line:
    """Calls a single server, or the primary behind Sentinels. It connects when it is first used, and after a loss."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connecting = asyncio.Lock()
        self._wire: _Wire | None = None
        self._connection: Any = None

    async def execute_command(self, *command: Any) -> Any:
        """As redis-py's, without what it makes of the answer."""
        wire = self._wire
        if wire is None or wire.is_lost:
            wire = await self._connected()
        try:
            return await wire.ask(command)
        except (ConnectionLost, hiredis.HiredisError):
            return await self._client.execute_command(*command)

    async def _connected(self) -> "_Wire":
        async with self._connecting:
            if self._wire is not None and not self._wire.is_lost:
                return self._wire
            pool = self._client.connection_pool
            if self._connection is not None:
                lost, self._connection = self._connection, None
                await lost.disconnect(nowait=True)
                await pool.release(lost)
            self._connection = await pool.get_connection()
            self._wire = _Wire(self._connection._writer.transport)
            return self._wire


class _Wire(asyncio.Protocol):
    """Reads a connection's answers in place of the protocol it had, which still hears when the connection ends."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._before = transport.get_protocol()
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._asked: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self.is_lost = transport.is_closing()
        transport.set_protocol(self)

    def ask(self, command: tuple[Any, ...]) -> "asyncio.Future[Any]":
        answer = self._loop.create_future()
        if self.is_lost:
            answer.set_exception(ConnectionLost("The connection was lost."))
            return answer
        self._asked.append((answer, self._loop.time()))
        self._transport.write(hiredis.pack_command(command))
        if self._watch is None:
            self._watch = self._loop.call_later(TIMEOUT_S, self._look)
        return answer

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not False:
                future, _ = self._asked.popleft()
                if future.done():
                    continue
                if isinstance(answer, hiredis.ReplyError):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        except (hiredis.ProtocolError, IndexError):
            self._lose()

    def connection_lost(self, error: Exception | None) -> None:
        self._lose()
        self._before.connection_lost(error)

    def _look(self) -> None:
        """Whoever asked first waited longest; if that was too long, nobody behind them need wait."""
        self._watch = None
        if not self._asked:
            return
        left_s = self._asked[0][1] + TIMEOUT_S - self._loop.time()
        if left_s <= 0:
            self._lose()
        else:
            self._watch = self._loop.call_later(left_s, self._look)

    def _lose(self) -> None:
        self.is_lost = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._transport.abort()
        while self._asked:
            future, _ = self._asked.popleft()
            if not future.done():
                future.set_exception(ConnectionLost("The connection was lost."))
