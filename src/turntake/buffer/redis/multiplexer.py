"""One connection that all calls of a process share.

How this works: redis-py opens the connection, logs in and chooses the database. Then `_Protocol` takes the socket over.
Each call is written to it at once, whether or not earlier calls have been answered, and leaves a future in a queue.
Redis answers the calls of one connection in their order, so an answer always belongs to the first future in the queue.
That takes less than half the CPU of redis-py, which takes a connection from its pool, and gives it back, for each call.

The multiplexer knows nothing of retries, failovers or kinds of errors. A call that fails here, because the connection
was lost or because the answer is an error, is made a second time through redis-py, which retries, finds a new primary,
and raises its own classes of errors. So only commands that may be repeated are sent this way.
"""

import asyncio
from collections import deque
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as ConnectionLost

from turntake.buffer.redis.url import TIMEOUT_MS, Client

NOT_PRIMARY = ("READONLY", "MASTERDOWN")
"""How the errors of a server begin that is no longer the primary. Its name may lead to the new one already."""


class Multiplexer:
    """Calls a single server, or the primary behind Sentinels. It connects when it is first used, and after a loss."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connecting = asyncio.Lock()
        self._protocol: _Protocol | None = None
        self._connection: Any = None

    async def execute_command(self, *command: Any) -> Any:
        """As redis-py's method of this name, but the answer is returned as it came: bytes, numbers and lists."""
        protocol = self._protocol
        if protocol is None or protocol.is_lost:
            protocol = await self._connected()
        try:
            return await protocol.call(command)
        except (ConnectionLost, hiredis.HiredisError):
            return await self._client.execute_command(*command)

    async def _connected(self) -> "_Protocol":
        async with self._connecting:
            # Whoever waited for the lock finds the connection that was made meanwhile.
            if self._protocol is not None and not self._protocol.is_lost:
                return self._protocol
            pool = self._client.connection_pool
            if self._connection is not None:
                lost, self._connection = self._connection, None
                await lost.disconnect(nowait=True)
                await pool.release(lost)
            # The connection stays taken from the pool, so redis-py closes it with the client but gives it to nobody.
            self._connection = await pool.get_connection()
            self._protocol = _Protocol(self._connection._writer.transport)
            return self._protocol


class _Protocol(asyncio.Protocol):
    """Writes calls to a connection and reads their answers.

    It replaces the protocol that redis-py's stream reader gave the connection; that one is still told when the
    connection ends, because closing the stream waits for it.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._replaced = transport.get_protocol()
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._unanswered: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.is_lost = transport.is_closing()
        transport.set_protocol(self)

    def call(self, command: tuple[Any, ...]) -> "asyncio.Future[Any]":
        """The answer, once it comes; ConnectionLost if it does not come within the time limit."""
        answer = self._loop.create_future()
        if self.is_lost:
            answer.set_exception(ConnectionLost("The connection was lost."))
            return answer
        self._unanswered.append((answer, self._loop.time()))
        self._transport.write(hiredis.pack_command(command))
        if self._timer is None:
            self._timer = self._loop.call_later(TIMEOUT_MS / 1000, self._check_time)
        return answer

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not False:
                future, _ = self._unanswered.popleft()
                if future.done():  # the caller was cancelled; its answer still takes its turn
                    continue
                if isinstance(answer, hiredis.ReplyError):
                    future.set_exception(answer)
                    if str(answer).startswith(NOT_PRIMARY):
                        self._drop()
                else:
                    future.set_result(answer)
        except (hiredis.ProtocolError, IndexError):
            # Bytes that are not an answer, or an answer nobody asked for: answers and futures no longer match.
            self._drop()

    def connection_lost(self, error: Exception | None) -> None:
        self._drop()
        self._replaced.connection_lost(error)

    def _check_time(self) -> None:
        """One timer for all calls, set for the oldest: it waits longest, and a late answer holds up all behind it."""
        self._timer = None
        if not self._unanswered:
            return
        left_s = self._unanswered[0][1] + TIMEOUT_MS / 1000 - self._loop.time()
        if left_s <= 0:
            self._drop()
        else:
            self._timer = self._loop.call_later(left_s, self._check_time)

    def _drop(self) -> None:
        """Ends the connection and every call on it."""
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport.abort()
        while self._unanswered:
            future, _ = self._unanswered.popleft()
            if not future.done():
                future.set_exception(ConnectionLost("The connection was lost."))
