"""Connections to the server: a few, shared, safe behind PgBouncer, each use bounded in time.

How this works: every request borrows a connection from a pool of psycopg's, and holds it for one statement or one short
transaction. Nothing may be left in a session, since behind PgBouncer the next statement may meet another one: no
prepared statements, no settings, no advisory locks. If the connection breaks, or the server says that it is no longer
the primary, the pool is emptied and the request is made again on a new connection. So whatever is sent must be harmless
the second time, because the first may have been carried out and only its reply lost. A request that the server undid
because of another one (a deadlock, or a database with a stricter isolation) is made again, and the pool stays as it is.

A server that stays silent is hung up on: a timer shuts the socket, and whoever waits on it sees a lost connection.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.errors import InsufficientPrivilege, InvalidSchemaName
from psycopg_pool import AsyncConnectionPool

from turntake.buffer.postgres.binary_arrays import register
from turntake.errors import ConfigurationError, StoreUnavailable

MOST_CONNECTIONS = 10  # two swaps, a claim and a few reads are under way at once; a server allows 100 in all
WAIT_MS = 5_000  # for a free connection; all ten are busy that long only if the server hangs
SILENCE_MS = 10_000  # far more than the slowest statement takes, and well below a lease of a minute
ATTEMPTS = 3  # one for the connection that broke, one for the server that was just leaving, one for the new one
UNDONE_ATTEMPTS = 20  # each time somebody else went first; so many in a row do not happen by chance
NO_HOST = "the host cannot be found; if the password has characters such as @ or /, write them as %40, %2F"

# By class or code: connection, rollback, resources, operator, system; then read-only, lock timeout, idle too long.
_PASSING = ("08", "40", "53", "57", "58", "25006", "55P03", "25P03")
# The server may be another by now, or has done nothing at all: a new connection may do better.
_WORTH_REPEATING = ("08", "40", "57P", "25006", "25P03")
_UNDONE = "40"  # the class of all errors by which a server undoes a transaction for the sake of another

# By the driver's resolver, and by libpq's.
_NO_HOST = ("resolve host", "translate host name")

# No statement is prepared, and none opens a transaction that stays open: see the head of this file.
_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}

T = TypeVar("T")
Parameters = Any


class Pool:
    """Opened and closed by whoever made it."""

    def __init__(self, conninfo: str) -> None:
        self._pool = AsyncConnectionPool(
            conninfo,
            kwargs=_OPTIONS,
            configure=_configure,
            min_size=1,
            max_size=MOST_CONNECTIONS,
            timeout=WAIT_MS / 1000,
            open=False,
        )

    async def open(self) -> None:
        try:
            await self._pool.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._pool.close(WAIT_MS / 1000)

    async def fetch(self, query: bytes, parameters: Parameters = ()) -> list[Any]:
        """All rows of one statement, which is a transaction of its own."""

        async def run(connection: AsyncConnection[Any]) -> list[Any]:
            cursor = await connection.execute(query, parameters, binary=True)
            return await cursor.fetchall() if cursor.description else []

        return await self.run(run)

    async def run(self, action: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        """What the action returns; it is run again on another connection if the first one broke."""

        async def attempt() -> T:
            async with self._pool.connection() as connection:
                with hung_up_on_silence(connection):
                    return await action(connection)

        with unavailable_on_error():
            return await self._repeated(attempt)

    async def begin(self, query: bytes, parameters: Parameters) -> "Transaction":
        """A transaction that begins with this statement; both again on another connection if the first one broke."""

        async def attempt() -> Transaction:
            async with AsyncExitStack() as stack:
                connection = await stack.enter_async_context(self._pool.connection())
                stack.enter_context(hung_up_on_silence(connection))
                await stack.enter_async_context(connection.pipeline())
                await stack.enter_async_context(connection.transaction())
                cursor = await connection.execute(query, parameters, binary=True)
                rows = await cursor.fetchall()
                return Transaction(connection, rows, stack.pop_all())

        return await self._repeated(attempt)

    async def _repeated(self, attempt: Callable[[], Awaitable[T]]) -> T:
        undone = broken = 0
        while True:
            try:
                return await attempt()
            except psycopg.Error as error:
                if is_undone(error):
                    undone += 1
                elif is_worth_repeating(error):
                    broken += 1
                else:
                    raise
                if undone == UNDONE_ATTEMPTS or broken == ATTEMPTS:
                    raise
                if not is_undone(error):
                    # The other connections lead to the same server, and would break one after the other.
                    await self._pool.drain()


class Transaction(NamedTuple):
    """One that is open on a connection of its own. `rows` are those of its first statement.

    It ends with `finish`, or with `stack`, which whoever began it must leave.
    """

    connection: AsyncConnection[Any]
    rows: list[Any]
    stack: AsyncExitStack

    async def execute(self, query: bytes, parameters: Parameters) -> None:
        await self.connection.execute(query, parameters)

    async def finish(self, query: bytes, parameters: Parameters) -> list[Any]:
        """The rows of the last statement. The connection is in pipeline mode: the commit is sent along with it."""
        cursor = await self.connection.execute(query, parameters, binary=True)
        await self.stack.aclose()
        return await cursor.fetchall()


@asynccontextmanager
async def direct(conninfo: str) -> AsyncIterator[AsyncConnection[Any]]:
    """A connection of one's own, for what must not be shared."""
    connection = await AsyncConnection.connect(conninfo, **_OPTIONS)
    async with connection:
        yield connection


@contextmanager
def hung_up_on_silence(connection: AsyncConnection[Any]) -> Iterator[None]:
    """Closes the socket of a server that does not answer in time.

    Cancelling the waiting task instead would not do: psycopg then asks the server to cancel, and waits for it again.
    """
    timer = asyncio.get_running_loop().call_later(SILENCE_MS / 1000, _hang_up, connection)
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def unavailable_on_error() -> Iterator[None]:
    """What will pass becomes StoreUnavailable; a mistake of ours stays what it is."""
    try:
        yield
    except psycopg.Error as error:
        if not is_passing(error):
            raise
        text = f"The PostgreSQL server cannot take it now ({reason(error)}); send it again later."
        raise StoreUnavailable(text) from error


@contextmanager
def explained_at_start(schema: str) -> Iterator[None]:
    """Errors while the store is opened, in words for whoever starts it.

    Missing rights are a matter of configuration; a server that is away may come back.
    """
    try:
        yield
    except (InsufficientPrivilege, InvalidSchemaName) as error:
        raise ConfigurationError(
            f"The PostgreSQL user may not use the schema {schema} ({reason(error)}): let an administrator run "
            f"CREATE SCHEMA {schema} AUTHORIZATION the_user, or GRANT the user all rights on it if it is there."
        ) from None
    except psycopg.Error as error:
        if not is_passing(error):
            raise
        raise StoreUnavailable(f"The PostgreSQL server cannot be used now: {reason(error)}.") from error


def reason(error: psycopg.Error) -> str:
    """The error in one line. A host that does not exist may be part of a password, and is not quoted."""
    text = str(error).partition("\n")[0]
    return NO_HOST if any(words in text for words in _NO_HOST) else text


def is_passing(error: psycopg.Error) -> bool:
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_PASSING)


def is_undone(error: psycopg.Error) -> bool:
    """Whether the server is well and undid this transaction because of another one."""
    return error.sqlstate is not None and error.sqlstate.startswith(_UNDONE)


def is_worth_repeating(error: psycopg.Error) -> bool:
    """A pool that gave no connection in time will give none at once; all else without a code is a lost connection."""
    if error.sqlstate is None:
        return is_passing(error) and not type(error).__module__.startswith("psycopg_pool")
    return error.sqlstate.startswith(_WORTH_REPEATING)


def _hang_up(connection: AsyncConnection[Any]) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


async def _configure(connection: AsyncConnection[Any]) -> None:
    register(connection)
    # Of transactions that we begin: versions and SKIP LOCKED do all that a stricter level would do, which a database
    # may have as its default. It goes along with BEGIN, and is no setting of the session.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
