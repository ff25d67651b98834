"""From a URL to a client: one server, Sentinel or Cluster, with time limits and few, short retries."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff

from turntake.errors import ConfigurationError

TIMEOUT_S = 2.0
RETRIES = 2
CONNECTIONS = 1_000
SENTINEL_PORT = 26_379
CLUSTER_SHARDS = 16
MOST_SHARDS = 4_096
PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,100}")

Client = Any
"""redis-py types its commands as unions that fit no call."""


class Options(NamedTuple):
    """Our own part of the URL."""

    prefix: str
    shards: int | None
    wait: int
    wait_ms: int
    is_cluster: bool


def options_of(url: str) -> Options:
    """Raises ConfigurationError that says which option is wrong."""
    given = {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}
    prefix = given.get("prefix", "turntake")
    if not PREFIX.fullmatch(prefix):
        raise ConfigurationError("`prefix` in the store's URL takes letters, digits and _ . : - only.")
    shards = _number(given, "shards", 1, MOST_SHARDS) if "shards" in given else None
    wait, wait_ms = _number(given, "wait", 0, 16), _number(given, "wait_ms", 1, 60_000, 1_000)
    return Options(prefix, shards, wait, wait_ms, _scheme(url)[1] == "cluster")


def connect(url: str) -> Client:
    """A client that has not connected yet."""
    limits: dict[str, Any] = {
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
        "health_check_interval": 0,
        "protocol": 2,
        "max_connections": CONNECTIONS,
    }
    backoff = ExponentialWithJitterBackoff(base=0.02, cap=0.3)
    scheme, kind = _scheme(url)
    try:
        if kind == "sentinel":
            return _behind_sentinels(url, scheme, limits | {"retry": Retry(backoff, RETRIES)})
        plain = _without_options(url, scheme)
        if kind == "cluster":
            retry = Retry(backoff, RETRIES + 2)
            return RedisCluster.from_url(plain, retry=retry, **limits)
        return Redis.from_url(plain, retry=Retry(backoff, RETRIES), **limits)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"The Redis store's URL cannot be read: {error}") from None


def _behind_sentinels(url: str, scheme: str, limits: dict[str, Any]) -> Client:
    """`redis+sentinel://[user:password@]host:port,host:port/name[/db]`; user and password are the servers'."""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    name, _, db = parts.path.strip("/").partition("/")
    if not name or not hosts:
        raise ConfigurationError("Behind Sentinel, write redis+sentinel://host:26379,host:26379/name-of-the-primary.")
    user, _, password = login.partition(":")
    login_of: dict[str, Any] = (
        {"username": unquote(user) or None, "password": unquote(password) or None} if login else {}
    )
    addresses = [(host or "localhost", int(port or SENTINEL_PORT)) for host, port in map(_split, hosts.split(","))]
    tls: dict[str, Any] = {"ssl": True} if scheme == "rediss" else {}
    untyped: Any = Sentinel
    sentinel = untyped(addresses, sentinel_kwargs={"socket_timeout": TIMEOUT_S, **tls})
    return sentinel.master_for(name, redis_class=Redis, db=int(db or 0), **login_of, **tls, **limits)


def _split(address: str) -> tuple[str, str]:
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = address.partition(":")
    return host, port


def _scheme(url: str) -> tuple[str, str]:
    """The protocol as redis-py names it, and what stands behind it: "" for one server."""
    scheme, _, kind = urlsplit(url).scheme.partition("+")
    return {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme), kind


def _without_options(url: str, scheme: str) -> str:
    parts = urlsplit(url)
    ours = ("prefix=", "shards=", "wait=", "wait_ms=")
    query = "&".join(option for option in parts.query.split("&") if option and not option.startswith(ours))
    return urlunsplit((scheme, parts.netloc, parts.path, query, ""))


def _number(given: Mapping[str, str], name: str, least: int, most: int, default: int = 0) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ConfigurationError(f"`{name}` in the store's URL must be a whole number from {least} to {most}.")
    return int(text)
