"""What a Redis or Valkey server must be like to keep promises, and what `turntake doctor` says about one."""

import logging
from collections.abc import AsyncIterator
from typing import Any

from redis.asyncio import RedisCluster
from redis.exceptions import NoPermissionError

from turntake.buffer.redis.client import UNREACHABLE, Client, connect, hang_up, options_of
from turntake.checks import Check
from turntake.clock import Clock
from turntake.errors import ConfigurationError

log = logging.getLogger("turntake")

OLDEST = 7
SKEW_MS = 1_000


async def refuse_unsafe(client: Client) -> None:
    """Raises ConfigurationError about a server that would throw conversations away; warns about one that forgets."""
    for info in await server_facts(client):
        for check in findings(info):
            if check.mark == "fail":
                raise ConfigurationError(f"The Redis store is not safe to use: {check.says}.")
            if check.mark == "warn":
                log.warning("The Redis store may forget: %s", check.says, extra={"action": "start"})


async def examine(url: str, clock: Clock) -> AsyncIterator[Check]:
    """The findings about the servers behind a URL. It changes nothing."""
    options, client = options_of(url), connect(url)
    try:
        for info in await server_facts(client):
            yield Check("ok", "store", f"{_name(info)} answers as {info.get('role', 'primary')}")
            for check in findings(info):
                yield check
        shards = await client.hget(f"{options.prefix}:meta", "shards")
        made = f"{int(shards)} shards" if shards else "will be set up at the first start"
        yield Check("ok", "store", f"prefix {options.prefix}: {made}")
    except UNREACHABLE as error:
        yield Check("fail", "store", f"the server does not answer ({error}); is it running, is the URL right?")
    finally:
        await hang_up(client)


async def server_facts(client: Client) -> list[dict[str, Any]]:
    """What each primary says about itself; nothing if this user may not ask."""
    try:
        if not isinstance(client, RedisCluster):
            return [await client.info()]
        answers = await client.info(target_nodes=RedisCluster.PRIMARIES)
        return list(answers.values()) if "redis_version" not in answers else [answers]
    except NoPermissionError:
        log.warning("The Redis store may forget: this user may not ask about it (INFO), so nobody can tell")
        return []


def findings(info: dict[str, Any]) -> list[Check]:
    """About one server, from what INFO says."""
    found = []
    version = str(info.get("redis_version", "?"))
    if version.split(".")[0].isdecimal() and int(version.split(".")[0]) < OLDEST:
        found.append(Check("fail", "store", f"Redis {version} is too old; use Redis 7, Valkey 7.2 or later"))
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        says = f"maxmemory-policy is {policy}, so it throws conversations away when memory runs short"
        found.append(Check("fail", "store", f"{says}; set it to noeviction"))
    elif policy != "noeviction":
        says = f"maxmemory-policy is {policy}; ours have no expiry and stay, but noeviction is the safer choice"
        found.append(Check("ok", "store", says))
    if not info.get("aof_enabled") and not _saves(info):
        says = "nothing is written to disk (no AOF), so a restart forgets every message; set appendonly yes"
        found.append(Check("warn", "store", says))
    return found


def _saves(info: dict[str, Any]) -> bool:
    """Whether the service behind it keeps the data in another way, which it does not say in Redis's own words."""
    return str(info.get("os", "")).startswith("Amazon")


def _name(info: dict[str, Any]) -> str:
    is_valkey = info.get("server_name") == "valkey"
    return f"Valkey {info.get('valkey_version')}" if is_valkey else f"Redis {info.get('redis_version')}"
