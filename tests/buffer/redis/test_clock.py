"""The server's time rules: for processes whose clocks differ, and for decisions that come late."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from harness.databases import Valkey
from harness.redis_store import backend_of, shard_of
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.swap import BEHIND_MS, SwapCall
from turntake.clock import SystemClock
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, LEASE_MS, OFF, PLAIN, ids_of, say, take

STALL_MS = BEHIND_MS + 100


class Shifted(SystemClock):
    """Of a machine whose time is wrong."""

    def __init__(self, by_ms: int = 0) -> None:
        super().__init__()
        self.shift(by_ms)

    def shift(self, by_ms: int) -> None:
        self._offset += by_ms / 1000
        self._latest = 0


async def test_stores_whose_clocks_differ_by_hours_agree(server: Valkey, url: str) -> None:
    """The server's time rules: nothing is due early or late, and no lease ends before its time."""
    clocks = [Shifted(by) for by in (-3_600_000, 0, 3_600_000)]
    async with AsyncExitStack() as stores:
        behind, right, ahead = [await stores.enter_async_context(RedisStore.open(url, clock)) for clock in clocks]
        seconds, micros = server.ask("TIME")
        for clock in clocks:
            assert abs(clock.now() - (seconds * 1000 + micros // 1000)) < 5_000
        await say(ahead, "m1")
        assert await behind.claim(5, LEASE_MS) == []
        assert await right.claim(5, LEASE_MS) == []
        await say(behind, "m1", key=BOB, rules=OFF)
        claim = await take(ahead)
        assert claim.key == BOB
        assert await behind.claim(5, LEASE_MS) == []
        assert await right.extend([claim], LEASE_MS) == [True]


async def test_the_time_that_the_data_has_seen_never_comes_again(url: str) -> None:
    """The server's clock was an hour ahead and was put right: a new process goes on from there."""
    later = VirtualClock(SystemClock().now() + 3_600_000)
    async with RedisStore.open(url, later) as store:
        await say(store, "m1", rules=OFF)
    clock = SystemClock()
    async with RedisStore.open(url, clock) as store:
        assert clock.now() >= later.now()
        assert ids_of(await take(store)) == ["m1"]


def stalling(store: RedisStore, clock: Shifted, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process stands still between deciding and writing, the first time. Notes when each write left.

    What is decided now is decided by the time before the stall; when the write leaves, the clock is right again.
    """
    write, left_at = backend_of(store)._swapper._write, list[int]()
    clock.shift(-STALL_MS)

    async def stalled(*args: Any) -> Any:
        if not left_at:
            clock.shift(STALL_MS)
        left_at.append(clock.now())
        return await write(*args)

    monkeypatch.setattr(backend_of(store)._swapper, "_write", stalled)
    return left_at


async def test_what_was_decided_too_long_ago_is_decided_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline counts from the later time, as does the time of arrival."""
    clock = Shifted()
    async with RedisStore.open(url, clock) as store:
        left_at = stalling(store, clock, monkeypatch)
        answer = await say(store, "m1")
        found = await store.find(ANN)
    assert len(left_at) == 2
    assert found is not None
    assert left_at[0] <= found.messages[0].received_at <= left_at[1]
    assert answer.due_at == found.messages[0].received_at + PLAIN.silence_ms


async def test_what_was_decided_too_long_ago_is_not_judged_unread(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process extends a claim whose row it never saw, and is late: the claim is not lost, and the lease
    counts from the later time."""
    clock = Shifted()
    async with RedisStore.open(url, clock) as store, RedisStore.open(url, clock) as other:
        await say(store, "m1", rules=OFF)
        claim = await take(store, lease_ms=30_000)
        left_at = stalling(other, clock, monkeypatch)
        assert await other.extend([claim], LEASE_MS) == [True]
        assert len(left_at) == 3, "late, refused for its row, taken"
        due_at = await store.next_due()
        assert due_at is not None
        assert left_at[0] + LEASE_MS <= due_at <= left_at[2] + LEASE_MS


async def test_nobody_falls_behind_the_latest_time_that_was_noted(server: Valkey, url: str, store: RedisStore) -> None:
    """After a failover to a server whose clock is behind, deadlines were given by the time before."""
    await say(store, "m1")
    async with RedisStore.open(url, SystemClock()) as other:
        later = other.clock.now() + 20_000
        server.ask("HSET", shard_of(store).counts, "seen", later)
        await say(other, "m2")
        assert other.clock.now() >= later


async def test_a_server_that_takes_long_is_given_longer(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided a second ago is decided again, but not for ever."""
    async with RedisStore.open(url, SystemClock()) as store:
        write, allowed_ms = backend_of(store)._swapper._write, list[int]()

        async def slow(call: SwapCall, replicas: int) -> Any:
            decided_at, behind_ms, *rest = call.args
            allowed_ms.append(int(behind_ms))
            call.args = [int(decided_at) - STALL_MS, behind_ms, *rest]
            (server_at, *answer), is_safe = await write(call, replicas)
            # Each of them at a time of its own: of two in the same millisecond, one is counted.
            return [server_at + len(allowed_ms), *answer], is_safe

        monkeypatch.setattr(backend_of(store)._swapper, "_write", slow)
        assert (await say(store, "m1")).status == "buffered"
        assert (await say(store, "m2")).status == "buffered"
        assert allowed_ms == [BEHIND_MS, 2 * BEHIND_MS] * 2, "and no longer than it needs"
        assert backend_of(store).lost == 0, "what is refused unread tells nothing of a loss"
