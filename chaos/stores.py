"""The stores of a run: how each is started, reached and hurt, and how many processes share it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from harness.databases import ALWAYS, HOST, Cluster, Postgres, Sentinel, Server, Valkey
from harness.pair import Pair
from harness.proxy import Proxy

ROLES = ("work",) * 4 + ("accept",) * 2


class Setup:
    """A store as a run uses it. `roles` are the processes on it.

    `has_index` if its deadlines are kept apart from the conversations, and can be lost without them. `has_clock` if its
    server's clock counts and not that of each process.
    """

    roles: tuple[str, ...] = ROLES
    people = 30
    has_index = False
    has_clock = True

    def __init__(self, url: str) -> None:
        self.url = url

    def wipe_index(self) -> None:
        """Deletes the index of deadlines behind everybody's back."""


class SqliteSetup(Setup):
    """One file, one process that does everything."""

    roles = ("all",)
    has_clock = False


class ServerSetup(Setup):
    """One server behind a network that can be hurt."""

    def __init__(self, url: str, server: Server, proxy: Proxy) -> None:
        super().__init__(url)
        self.server = server
        self.proxy = proxy

    def sever(self) -> None:
        """The server ends every connection, and forgets what it may."""


class RedisSetup(ServerSetup):
    """Valkey that syncs each write: with `everysec`, a killed server may lose what it acknowledged."""

    server: Valkey
    has_index = True

    def sever(self) -> None:
        sever(self.server)

    def wipe_index(self) -> None:
        with self.server.client() as client:
            client.delete(*client.scan_iter("turntake:{s*}:due", count=1_000))


class PostgresSetup(ServerSetup):
    """PostgreSQL with its own settings."""

    def sever(self) -> None:
        assert isinstance(self.server, Postgres)
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'chaos'")


class PairSetup(Setup):
    """A primary and a replica behind one name; a message counts once the replica has it."""

    def __init__(self, url: str, pair: Pair, proxy: Proxy) -> None:
        super().__init__(url)
        self.pair = pair
        self.proxy = proxy


class SentinelSetup(Setup):
    """A primary and a replica that takes its place; nobody waits for the replica."""

    def __init__(self, group: Sentinel) -> None:
        super().__init__(group.url)
        self.group = group


class ClusterSetup(Setup):
    """Three nodes without replicas; those that are up go on without the others."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.url)
        self.cluster = cluster


def sever(server: Valkey) -> None:
    server.ask("SCRIPT", "FLUSH")
    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    server.ask("CLIENT", "KILL", "TYPE", "pubsub")


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


@asynccontextmanager
async def wait(folder: Path) -> AsyncIterator[Setup]:
    with Pair(folder, ALWAYS) as pair:
        async with Proxy(pair.primary.port) as proxy:
            yield PairSetup(f"redis://{HOST}:{proxy.port}?wait=1", pair, proxy)


@asynccontextmanager
async def sentinel(folder: Path) -> AsyncIterator[Setup]:
    with Sentinel(folder, ALWAYS) as group:
        yield SentinelSetup(group)


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Setup]:
    with Cluster(folder, 3, ALWAYS, "cluster-require-full-coverage no") as nodes:
        yield ClusterSetup(nodes)


MAIN = ("sqlite", "redis", "postgres")
STORES = {
    "sqlite": sqlite,
    "redis": redis,
    "postgres": postgres,
    "cluster": cluster,
    "sentinel": sentinel,
    "wait": wait,
}
