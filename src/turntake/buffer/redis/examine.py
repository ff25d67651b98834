"""What a Redis or Valkey server must be like to keep promises, and what `turntake doctor` says about one."""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from redis.asyncio import RedisCluster
from redis.exceptions import NoPermissionError, ResponseError

from turntake.buffer.open import clock_findings
from turntake.buffer.redis.keys import Shard
from turntake.buffer.redis.url import (
    CLUSTER_SHARDS,
    UNREACHABLE,
    Client,
    RedisOptions,
    connect,
    hang_up,
    options_of,
)
from turntake.clock import Clock
from turntake.errors import ConfigurationError
from turntake.finding import Finding

log = logging.getLogger("turntake")

OLDEST_VERSION = 7  # the first whose scripts may begin with #!lua and flags
SKEW_MS = 1_000  # the horizon: a difference that nobody would notice is not worth a warning
SYNCED = {
    "always": "what was accepted is on the server's disk",
    "everysec": "about the last second is lost with the machine, and a moment may be if only the server is killed",
    "no": "what the system had not yet written, often half a minute, is lost with the machine",
    "unknown": "this user may not ask (CONFIG GET); with less than always the latest may be lost",
}

Node = Mapping[str, Any]
"""How a call names one server of a cluster; empty where there is only one."""
Info = Mapping[str, Any]


async def refuse_unsafe(client: Client) -> None:
    """Raises ConfigurationError about a server that would throw conversations away; warns about one that forgets."""
    nodes = await _nodes(client)
    for node in nodes:
        try:
            info = await _info(client, node)
        except UNREACHABLE as error:
            if len(nodes) == 1:
                raise
            log.warning("A node of the store does not answer", extra={"action": "start", "error": type(error).__name__})
            continue
        for finding in [_unasked()] if info is None else (*_fitness(info), *_memory(info)):
            if finding.level == "fail":
                raise ConfigurationError(f"The Redis store is not safe to use: {finding.text}.")
            if finding.level == "warn":
                log.warning("The Redis store may forget: %s", finding.text, extra={"action": "start"})


async def examine(url: str, clock: Clock) -> AsyncIterator[Finding]:
    """The findings about the servers behind a URL. It changes nothing."""
    options, client = options_of(url), connect(url)
    try:
        for node in await _nodes(client):
            info = await _info(client, node)
            for finding in [_unasked()] if info is None else await _findings(client, node, info, options):
                yield finding
            yield await _offset(client, node, clock)
        yield await _shards(client, options)
        for finding in await _noted_time(client, options):
            yield finding
    except UNREACHABLE as error:
        yield Finding("fail", "store", f"the server does not answer ({error}); is it running, is the URL right?")
    finally:
        await hang_up(client)


async def _nodes(client: Client) -> list[Node]:
    """Every server that takes writes."""
    if not isinstance(client, RedisCluster):
        return [{}]
    await client.initialize()
    return [{"target_nodes": primary} for primary in client.get_primaries()]


async def _info(client: Client, node: Node) -> Info | None:
    """What a server says about itself; nothing if this user may not ask."""
    try:
        info: Info = await client.info(**node)
        return info
    except NoPermissionError:
        return None


def _unasked() -> Finding:
    return Finding("warn", "store", "this user may not ask about the server (INFO), so nobody can tell what it keeps")


async def _findings(client: Client, node: Node, info: Info, options: RedisOptions) -> list[Finding]:
    findings = [_role(info, node), *_fitness(info), *_memory(info)]
    if info.get("aof_enabled"):
        findings.append(_synced(await _appendfsync(client, node)))
    return [*findings, _replicas(info, options.wait)]


def _role(info: Info, node: Node) -> Finding:
    is_valkey = info.get("server_name") == "valkey"
    name = f"Valkey {info.get('valkey_version')}" if is_valkey else f"Redis {info.get('redis_version')}"
    if node:
        name += f" at {node['target_nodes'].name}"
    if info.get("role") == "slave":
        return Finding("fail", "store", f"{name} is a replica and takes no writes; name the primary")
    return Finding("ok", "store", f"{name} answers as primary")


def _fitness(info: Info) -> list[Finding]:
    """Whether it can be used at all."""
    findings = []
    version = str(info.get("redis_version", "?"))
    if version.split(".")[0].isdecimal() and int(version.split(".")[0]) < OLDEST_VERSION:
        findings.append(Finding("fail", "store", f"Redis {version} is too old; use Redis 7, Valkey 7.2 or later"))
    return [*findings, *_eviction(info.get("maxmemory_policy"))]


def _eviction(policy: str | None) -> list[Finding]:
    if policy is None:
        return []
    if policy.startswith("allkeys"):
        text = f"maxmemory-policy is {policy}, so it throws conversations away when memory runs short"
        return [Finding("fail", "store", f"{text}; set it to noeviction")]
    if policy != "noeviction":
        text = f"maxmemory-policy is {policy}; ours have no expiry and stay, but noeviction is the safer choice"
        return [Finding("ok", "store", text)]
    return [Finding("ok", "store", "maxmemory-policy is noeviction, so nothing is thrown away")]


def _memory(info: Info) -> list[Finding]:
    """Whether it outlives a restart. A service may keep the data in a way that Redis has no words for."""
    if info.get("aof_enabled"):
        return []
    text = "appendonly no: but for snapshots, or a service that keeps it otherwise (MemoryDB),"
    return [Finding("warn", "durability", f"{text} a restart forgets every message; set appendonly yes")]


async def _appendfsync(client: Client, node: Node) -> str:
    try:
        answer = await client.config_get("appendfsync", **node)
    except ResponseError:  # forbidden to this user, or unknown at services that hide it
        return "unknown"
    return str(answer.get("appendfsync", "unknown"))


def _synced(policy: str) -> Finding:
    mark: Any = "ok" if policy == "always" else "warn"
    return Finding(mark, "durability", f"appendonly yes, appendfsync {policy}: {SYNCED.get(policy, SYNCED['unknown'])}")


def _replicas(info: Info, wait: int) -> Finding:
    """Those who are still being filled confirm nothing."""
    followers = [one for name, one in info.items() if name.startswith("slave") and isinstance(one, dict)]
    filling = sum(one.get("state") != "online" for one in followers)
    online = int(info.get("connected_slaves", 0)) - filling
    text = f"{_counted(online, 'replica')} connected"
    if online < wait:
        do = "connect more, or lower `wait` in the store's URL"
        return Finding("fail", "replicas", f"{text}, and wait={wait} asks for more, so every message gets 503: {do}")
    return Finding("ok", "replicas", f"{text}, enough for wait={wait}" if wait else text)


async def _offset(client: Client, node: Node, clock: Clock) -> Finding:
    seconds, micros = await client.time(**node)
    ahead_ms = seconds * 1000 + micros // 1000 - clock.now()
    text = f"the server's clock is {abs(ahead_ms):,} ms {'ahead of' if ahead_ms >= 0 else 'behind'} this machine's"
    if abs(ahead_ms) > SKEW_MS:
        return Finding("warn", "clock", f"{text}; turntake goes by the server's")
    return Finding("ok", "clock", text)


async def _noted_time(client: Client, options: RedisOptions) -> list[Finding]:
    """A time that some process noted in any shard: it counts until the server's clock has caught up."""
    anywhere = {"target_nodes": RedisCluster.RANDOM} if isinstance(client, RedisCluster) else {}
    seconds, micros = await client.time(**anywhere)
    shards = range(int(await client.hget(f"{options.prefix}:meta", "shards") or 0))
    noted = [await client.hget(Shard(options.prefix, number).counts, "seen") for number in shards]
    return clock_findings(seconds * 1000 + micros // 1000, max((int(at or 0) for at in noted), default=0))


async def _shards(client: Client, options: RedisOptions) -> Finding:
    return shard_finding(int(await client.hget(f"{options.prefix}:meta", "shards") or 0), options)


def shard_finding(shards: int, options: RedisOptions) -> Finding:
    """What to say about a store that was made with so many shards; 0 if there is none yet."""
    if not shards:
        return Finding("ok", "store", f"prefix {options.prefix}: will be set up at the first start")
    text = f"prefix {options.prefix}: {_counted(shards, 'shard')}"
    if options.shards not in (None, shards):
        return Finding("fail", "store", f"{text}, which cannot change; write shards={shards} or leave it out")
    if options.is_cluster and options.shards is None and shards < CLUSTER_SHARDS:
        text += f", which cannot change; a new store on a cluster has {CLUSTER_SHARDS}, so that less waits while one"
        text += f" moves. To get there, start new processes with another prefix, such as {options.prefix}2, send to"
        text += f" those, and stop the old ones once nothing waits; to stay, write shards={shards} into the URL"
    return Finding("ok", "store", text)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
