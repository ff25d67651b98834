"""What Redis may throw away: nothing of ours."""

from pathlib import Path

import pytest

from harness.databases import Valkey
from harness.redis_store import live_a_full_life
from harness.writing import key
from turntake.buffer.redis.backend import RedisStore
from turntake.errors import ConfigurationError
from turntake.rules.conversation import Answered, Dead, Progress
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, OFF, say


async def test_nothing_that_was_said_ever_expires(server: Valkey, prefix: str, store: RedisStore) -> None:
    """Conversations that wait, are answered, are being answered or failed, their turns, letters and indexes: an expiry
    on any of their keys would lose it without a word, on a clock that no test moves."""
    for name in ("waiting", "answered", "saved", "dead", "discarded"):
        await say(store, "m1", key=ConversationKey.of(name), rules=OFF)
    claims = {claim.key.conversation: claim for claim in await store.claim(5, LEASE_MS)}
    await store.settle(claims["answered"], Answered(("hello",)))
    await store.save(claims["saved"], Progress(("hello",), 0, True))
    await store.settle(claims["dead"], Dead("no"))
    await store.settle(claims["discarded"], Dead("no"))
    assert await store.letters.discard(claims["discarded"].turn.id)
    await say(store, "m2", key=ConversationKey.of("waiting"))
    assert len([name for name in keys_of(server, prefix) if ":c:" in name]) == 5
    assert expiring(server, prefix) == []


async def test_nothing_that_is_left_after_a_full_life_ever_expires(
    server: Valkey, prefix: str, store: RedisStore, clock: VirtualClock
) -> None:
    """Letters that were retried and discarded, turns that were interrupted, ids that outlive what was said."""
    await live_a_full_life(store, clock)
    assert expiring(server, prefix) == []
    for claim in await store.claim(10, LEASE_MS):
        await store.settle(claim, Answered())
    await clock.advance(1)
    assert await store.history.forget(clock.now(), clock.now() - 1)
    assert any(name.endswith(":ids") for name in keys_of(server, prefix))
    assert expiring(server, prefix) == []


def keys_of(server: Valkey, prefix: str) -> list[str]:
    return [name.decode() for name in server.ask("KEYS", f"{prefix}:*")]


def expiring(server: Valkey, prefix: str) -> list[str]:
    return [name for name in keys_of(server, prefix) if server.ask("PTTL", name) != -1]


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_a_server_that_would_evict_conversations_is_refused(
    server: Valkey, clock: VirtualClock, policy: str
) -> None:
    """Under cache pressure allkeys-lru threw away 200 of 200 buffers."""
    server.ask("CONFIG", "SET", "maxmemory-policy", policy)
    try:
        with pytest.raises(ConfigurationError, match=f"maxmemory-policy is {policy}.*noeviction"):
            async with RedisStore.open(server.url, clock):
                pass
    finally:
        server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_a_server_that_evicts_what_expires_keeps_every_conversation(
    tmp_path: Path, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """volatile-lru is what ElastiCache starts with: a cache beside us is evicted, and none of ours has an expiry."""
    with Valkey(tmp_path, "maxmemory 12mb", "maxmemory-policy volatile-lru") as server:
        async with RedisStore.open(server.url, clock) as store:
            assert "forget" not in caplog.text
            await store.append([Append(key(number), Message("m1", "x" * 100), OFF) for number in range(200)])
            claims = await store.claim(100, LEASE_MS)
            for claim in claims[:50]:
                await store.settle(claim, Answered())
            with server.client() as cache:
                for number in range(300):
                    cache.set(f"cache{number}", "x" * 100_000, ex=1_000)
            assert int(server.ask("INFO", "stats")["evicted_keys"]) > 100
            await clock.advance(LEASE_MS)
            assert len(await store.claim(500, LEASE_MS) + await store.claim(500, LEASE_MS)) == 150
            assert (await say(store, "m1", key=key(7), rules=OFF)).status == "duplicate"
            assert await store.rebuild() == 0


async def test_a_server_that_writes_nothing_down_is_warned_about(
    server: Valkey, tmp_path: Path, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Without AOF a killed server forgets all; with it, there is nothing to say."""
    async with RedisStore.open(server.url, clock):
        assert "a restart forgets every message; set appendonly yes" in caplog.text
    caplog.clear()
    with Valkey(tmp_path) as safe:
        async with RedisStore.open(safe.url, clock):
            assert caplog.text == ""
