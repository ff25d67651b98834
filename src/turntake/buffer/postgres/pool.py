"""Connections to the server: a few, shared, safe behind PgBouncer, each use bounded in time.

Whatever is sent twice because a connection broke must be harmless the second time.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from turntake.buffer.postgres.binary_arrays import register
from turntake.errors import StoreUnavailable

MOST = 10
WAIT_S = 5.0
PATIENCE_S = 10.0
ATTEMPTS = 3
NO_HOST = "the host cannot be found; if the password has characters such as @ or /, write them as %40, %2F"

# By class or code: connection, rollback, resources, operator, system; then read-only, lock timeout, idle too long.
_PASSING = ("08", "40", "53", "57", "58", "25006", "55P03", "25P03")
# The server may be another by now, or has done nothing at all: a new connection may do better.
_WORTH_REPEATING = ("08", "40", "57P", "25006", "25P03")

# By the driver's resolver, and by libpq's.
_NO_HOST = ("resolve host", "translate host name")

T = TypeVar("T")
Parameters = Any


class Connections:
    """Opened and closed by whoever made it."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._pool = AsyncConnectionPool(
            conninfo, kwargs=_OPTIONS, configure=_configure, min_size=1, max_size=MOST, timeout=WAIT_S, open=False
        )

    async def open(self) -> None:
        try:
            await self._pool.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._pool.close(WAIT_S)

    async def fetch(self, query: bytes, parameters: Parameters = ()) -> list[Any]:
        """All rows of one statement, which is a transaction of its own."""

        async def run(connection: AsyncConnection[Any]) -> list[Any]:
            cursor = await connection.execute(query, parameters, binary=True)
            return await cursor.fetchall() if cursor.description else []

        return await self.steadily(run)

    async def steadily(self, action: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        """What the action returns; it is run again on another connection if the first one broke."""
        with not_now():
            for _ in range(ATTEMPTS - 1):
                try:
                    return await self._once(action)
                except psycopg.Error as error:
                    if not _is_worth_repeating(error):
                        raise
                    await self._pool.drain()
            return await self._once(action)

    async def _once(self, action: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        async with self._pool.connection() as connection:
            with bounded(connection):
                return await action(connection)


@asynccontextmanager
async def direct(conninfo: str) -> AsyncIterator[AsyncConnection[Any]]:
    """A connection of one's own, for what must not be shared."""
    connection = await AsyncConnection.connect(conninfo, **_OPTIONS)
    async with connection:
        yield connection


@contextmanager
def bounded(connection: AsyncConnection[Any]) -> Iterator[None]:
    """A server that stays silent for too long is hung up on, which whoever waits for it sees as a lost connection.

    Cancelling the wait instead would wait for the server once more.
    """
    timer = asyncio.get_running_loop().call_later(PATIENCE_S, _hang_up, connection)
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def not_now() -> Iterator[None]:
    """What will pass becomes StoreUnavailable; a mistake of ours stays what it is."""
    try:
        yield
    except psycopg.Error as error:
        if not is_passing(error):
            raise
        says = f"The PostgreSQL server cannot take it now ({reason(error)}); send it again later."
        raise StoreUnavailable(says) from error


def reason(error: psycopg.Error) -> str:
    """In a line. A host that is none may be the rest of a password, and is not quoted."""
    says = str(error).partition("\n")[0]
    return NO_HOST if any(word in says for word in _NO_HOST) else says


def is_passing(error: psycopg.Error) -> bool:
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_PASSING)


def _is_worth_repeating(error: psycopg.Error) -> bool:
    """A pool that gave no connection in time will give none at once; all else without a code is a lost connection."""
    if error.sqlstate is None:
        return is_passing(error) and not type(error).__module__.startswith("psycopg_pool")
    return error.sqlstate.startswith(_WORTH_REPEATING)


def _hang_up(connection: AsyncConnection[Any]) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


async def _configure(connection: AsyncConnection[Any]) -> None:
    register(connection)


# Behind PgBouncer the next statement may meet another session, so nothing is prepared and no transaction is implied.
_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}
