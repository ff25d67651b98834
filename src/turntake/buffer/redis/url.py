"""From a URL to a client: one server, Sentinel or Cluster, with time limits and few, short retries."""

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, urlsplit, urlunsplit

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import RedisClusterException, RedisError

from turntake.errors import ConfigurationError, StoreUnavailable

TIMEOUT_MS = 2_000  # a script takes milliseconds, and the least patient platforms wait 3 s for us
RETRIES = 2  # a broken connection is whole again at the second try; whoever is refused sends again anyway
CLUSTER_RETRIES = RETRIES + 2  # one more to learn where a slot went, one more to meet its new node
CONNECTIONS = 1_000  # far more than are ever used at once; redis-py raises an error where it meets this limit
SENTINEL_PORT = 26_379
CLUSTER_SHARDS = 256  # even on 16 nodes each has its share, and a slot that moves is a small part of the data
MOST_SHARDS = 256  # whoever lists conversations or starts asks all of them, which still takes no time
PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
OURS = ("prefix", "shards", "wait", "wait_ms")
ESCAPE = "if the password has characters such as @ / ? #, write them as %40 %2F %3F %23"
UNREACHABLE = (RedisError, RedisClusterException, OSError, TimeoutError)
BACKOFF = ExponentialWithJitterBackoff(base=0.02, cap=0.3)  # seconds, as redis-py takes them
LIMITS: dict[str, Any] = {
    "socket_timeout": TIMEOUT_MS / 1000,
    "socket_connect_timeout": TIMEOUT_MS / 1000,
    "socket_keepalive": True,
    "health_check_interval": 0,
    "protocol": 2,
}

Client = Any
"""redis-py types its commands as unions that fit no call."""


class RedisOptions(NamedTuple):
    """Our own part of the URL."""

    prefix: str
    shards: int | None
    wait: int
    wait_ms: int
    is_cluster: bool


def options_of(url: str) -> RedisOptions:
    """Raises ConfigurationError that says which option is wrong."""
    parts, _, kind = _split(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    prefix = query.get("prefix", "turntake")
    if not PREFIX.fullmatch(prefix):
        raise ConfigurationError("`prefix` in the store's URL takes letters, digits and _ . : - only.")
    shards = _number(query, "shards", 1, MOST_SHARDS) if "shards" in query else None
    wait, wait_ms = _number(query, "wait", 0, 16), _number(query, "wait_ms", 1, 60_000, 1_000)
    return RedisOptions(prefix, shards, wait, wait_ms, kind == "cluster")


def connect(url: str) -> Client:
    """A client that has not connected yet."""
    parts, scheme, kind = _split(url)
    try:
        client = {"": _one_server, "cluster": _cluster, "sentinel": _behind_sentinels}[kind](parts, scheme)
        _try_out(client)
        return client
    except TypeError:
        raise _unreadable(f"it has an option that is neither ours ({', '.join(OURS)}) nor redis-py's") from None
    except ValueError:
        raise _unreadable("a port, the database or an option is not what it must be, often a number") from None


def database_of(client: Client) -> int:
    """The number of the client's database; a cluster has only one."""
    return 0 if isinstance(client, RedisCluster) else client.connection_pool.connection_kwargs.get("db") or 0


class _UnavailableOnError:
    """Whatever the server or the way to it does wrong becomes StoreUnavailable.

    It has no state, so that one serves all: entering it costs next to nothing, and every command is sent within it.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and isinstance(error, UNREACHABLE):
            raise StoreUnavailable(f"Redis did not do as asked ({type(error).__name__}: {error}).") from error


unavailable_on_error = _UnavailableOnError()


async def hang_up(client: Client) -> None:
    """Closes every connection, those to Sentinels too."""
    await client.aclose()
    pool: Any = getattr(client, "connection_pool", None)
    if isinstance(pool, SentinelConnectionPool):
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


def _one_server(parts: SplitResult, scheme: str) -> Client:
    if not re.fullmatch(r"/?\d*", parts.path):
        raise _unreadable("the database is a number, as in redis://host:6379/0")
    plain = urlunsplit((scheme, parts.netloc, parts.path, _theirs(parts), ""))
    return Redis.from_url(plain, retry=Retry(BACKOFF, RETRIES), max_connections=CONNECTIONS, **LIMITS)


def _cluster(parts: SplitResult, scheme: str) -> Client:
    if parts.path not in ("", "/", "/0"):
        raise _unreadable("a cluster has only one database, so leave the path out")
    plain = urlunsplit((scheme, parts.netloc, "", _theirs(parts), ""))
    return RedisCluster.from_url(plain, retry=Retry(BACKOFF, CLUSTER_RETRIES), max_connections=CONNECTIONS, **LIMITS)


def _behind_sentinels(parts: SplitResult, scheme: str) -> Client:
    """`redis+sentinel://[user:password@]host:port,host:port/name[/db]`; user and password are the servers'."""
    login, at, hosts = parts.netloc.rpartition("@")
    name, _, db = parts.path.strip("/").partition("/")
    if not name or not hosts:
        raise _unreadable("behind Sentinel, write redis+sentinel://host:26379,host:26379/name-of-the-primary")
    servers = parse_url(urlunsplit((scheme, f"{login}{at}primary", "", _theirs(parts), "")))
    options = {key: value for key, value in servers.items() if key not in ("host", "port", "db", "connection_class")}
    tls: dict[str, Any] = {"ssl": True} if scheme == "rediss" else {}
    tls |= {key: value for key, value in options.items() if key.startswith("ssl")}
    watchers: dict[str, Any] = {"retry": Retry(BACKOFF, 0), **LIMITS, **tls}
    untyped: Any = Sentinel
    sentinel = untyped([_address(host) for host in hosts.split(",")], sentinel_kwargs=watchers)
    options = {"max_connections": CONNECTIONS, "retry": Retry(BACKOFF, RETRIES), **LIMITS, **tls, **options}
    return sentinel.master_for(name, redis_class=Redis, db=int(db or 0), **options)


def _try_out(client: Client) -> None:
    """Makes a connection without opening it, so that an unknown option is refused now and not at the first use."""
    if isinstance(client, RedisCluster):
        node = next(iter(client.nodes_manager.startup_nodes.values()))
        node.connection_class(**node.connection_kwargs)
    else:
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)


def _address(host: str) -> tuple[str, int]:
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        name, _, port = host.partition(":")
    return name or "localhost", int(port or SENTINEL_PORT)


def _split(url: str) -> tuple[SplitResult, str, str]:
    """The URL's parts, the protocol as redis-py names it, and what stands behind it ("" for one server)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unreadable("where its host begins and ends is not clear") from None
    if parts.fragment or "@" in parts.path + parts.query:
        # A password with a bare # or @ is cut in two here, and half of it would be shown in errors as a host and port.
        raise _unreadable("there is a # in it, or an @ behind the host")
    scheme, _, kind = parts.scheme.partition("+")
    return parts, {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme), kind


def _unreadable(why: str) -> ConfigurationError:
    """`why` repeats nothing of the URL: whatever part it is, it may be one of the password."""
    return ConfigurationError(f"The Redis store's URL cannot be read: {why}; {ESCAPE}.")


def _theirs(parts: SplitResult) -> str:
    """The options that are redis-py's."""
    return "&".join(option for option in parts.query.split("&") if option.partition("=")[0] not in OURS)


def _number(query: Mapping[str, str], name: str, least: int, most: int, default: int = 0) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ConfigurationError(f"`{name}` in the store's URL must be a whole number from {least} to {most}.")
    return int(text)
