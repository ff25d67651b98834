"""The stores of a run: how each is started, reached and hurt, and how many processes share it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from harness.databases import ALWAYS, HOST, Postgres, Server, Valkey
from harness.proxy import Proxy

ROLES = ("work",) * 4 + ("accept",) * 2


class Setup:
    """A store as a run uses it. `roles` are the processes on it; `proxy` and `server` are None if there are none.

    `has_index` if its deadlines are kept apart from the conversations, and can be lost without them.
    """

    roles: tuple[str, ...] = ROLES
    people = 30
    has_index = False

    def __init__(self, url: str, server: Server | None = None, proxy: Proxy | None = None) -> None:
        self.url = url
        self.server = server
        self.proxy = proxy

    def sever(self) -> None:
        """The server ends every connection, and forgets what it may."""

    def wipe_index(self) -> None:
        """Deletes the index of deadlines behind everybody's back."""


class SqliteSetup(Setup):
    """One file, one process that does everything."""

    roles = ("all",)


class RedisSetup(Setup):
    """Valkey that syncs each write: with `everysec`, a killed server may lose what it acknowledged."""

    server: Valkey
    has_index = True

    def sever(self) -> None:
        self.server.ask("SCRIPT", "FLUSH")
        self.server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        self.server.ask("CLIENT", "KILL", "TYPE", "pubsub")

    def wipe_index(self) -> None:
        with self.server.client() as client:
            client.delete(*client.scan_iter("turntake:{s*}:due", count=1_000))


class PostgresSetup(Setup):
    """PostgreSQL with its own settings."""

    server: Postgres

    def sever(self) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'chaos'")


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Setup]:
    yield SqliteSetup(f"sqlite:///{folder / 'chaos.db'}")


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[Setup]:
    with Valkey(folder / "valkey", ALWAYS) as server:
        async with Proxy(server.port) as proxy:
            yield RedisSetup(f"redis://{HOST}:{proxy.port}", server, proxy)


@asynccontextmanager
async def postgres(folder: Path) -> AsyncIterator[Setup]:
    with Postgres(folder / "postgres") as server:
        server.database("chaos")
        async with Proxy(server.port) as proxy:
            yield PostgresSetup(f"postgresql://postgres@{HOST}:{proxy.port}/chaos", server, proxy)


STORES = {"sqlite": sqlite, "redis": redis, "postgres": postgres}
