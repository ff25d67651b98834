"""Hints: a process that waits hears of an earlier deadline, and does well without."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from harness.databases import Valkey, until
from harness.proxy import proxying
from harness.redis_store import backend_of, watched
from harness.writing import key
from turntake import Rules, Turn, TurnTake
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.store import HORIZON_MS, Hint
from turntake.claim.alarm import Alarm
from turntake.clock import SystemClock
from turntake.rules.watch import JOIN_MS
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import BOB, say

SOON = Rules(silence_ms=300, typing_inference_ms=0)


def is_heard(server: Valkey, prefix: str, listeners: int = 1) -> Callable[[], bool]:
    return lambda: server.ask("PUBSUB", "NUMSUB", f"{prefix}:0:hints")[1] == listeners


async def test_another_process_hears_of_an_early_deadline_and_nothing_of_late_ones(
    server: Valkey, url: str, prefix: str, store: RedisStore, clock: VirtualClock
) -> None:
    """Publishing is for whoever listens now; garbage on the channel ends nothing."""
    async with RedisStore.open(url, SystemClock()) as other:
        hints = other.hints()
        heard = asyncio.ensure_future(anext(hints))
        await asyncio.to_thread(until, is_heard(server, prefix))
        await say(store, "m1", key=BOB)
        answer = await say(store, "m1", rules=SOON)
        assert await asyncio.wait_for(heard, 5) == Hint(answer.due_at or 0)
        heard = asyncio.ensure_future(anext(hints))
        assert server.ask("PUBLISH", f"{prefix}:0:hints", "what is this") == 1
        await clock.advance(1_000)
        again = await say(store, "m2", rules=SOON)
        assert await asyncio.wait_for(heard, 5) == Hint(again.due_at or 0)
        await hints.aclose()  # type: ignore[attr-defined]


async def test_a_hint_is_given_though_the_first_try_was_refused(
    server: Valkey, url: str, prefix: str, store: RedisStore, clock: VirtualClock
) -> None:
    """Whoever writes to a conversation for the first time does not know its row yet: that is the usual case."""
    await say(store, "m1")
    async with RedisStore.open(url, clock) as other:
        hints = store.hints()
        heard = asyncio.ensure_future(anext(hints))
        await asyncio.to_thread(until, is_heard(server, prefix))
        answer = await say(other, "m2", rules=SOON)
        assert await asyncio.wait_for(heard, 5) == Hint(answer.due_at or 0)
        await hints.aclose()  # type: ignore[attr-defined]


class Answering:
    """An agent that notes when it was called."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.answers: asyncio.Queue[int] = asyncio.Queue()

    async def __call__(self, turn: Turn) -> str:
        await self.answers.put(self._clock.now())
        return "hello"


async def test_a_listener_that_lost_its_connection_listens_again(
    server: Valkey, url: str, prefix: str, store: RedisStore
) -> None:
    """Cut off by the server, or by the network for a while; meanwhile nothing fails."""
    with proxying(server.port) as proxy:
        through = url.replace(str(server.port), str(proxy.port))
        async with RedisStore.open(through, SystemClock()) as other:
            hints = other.hints()
            heard = asyncio.ensure_future(anext(hints))
            await asyncio.to_thread(until, is_heard(server, prefix))
            server.ask("CLIENT", "KILL", "TYPE", "pubsub")
            await asyncio.to_thread(until, is_heard(server, prefix))
            proxy.cut()
            await asyncio.to_thread(until, is_heard(server, prefix, 0))
            proxy.heal()
            await asyncio.to_thread(until, is_heard(server, prefix))
            answer = await say(store, "m1", rules=SOON)
            assert await asyncio.wait_for(heard, 5) == Hint(answer.due_at or 0)
            await hints.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", ["hints", "horizon"])
async def test_a_worker_elsewhere_is_woken_by_a_hint_and_without_one_by_the_horizon(
    server: Valkey, url: str, prefix: str, way: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process only receives, another only answers. Each way does alone: without a horizon, or with no hint."""
    if way == "hints":
        monkeypatch.setattr(Alarm.__init__, "__defaults__", (3_600_000,))
    agent = Answering(clock)
    async with (
        RedisStore.open(url, clock) as behind,
        TurnTake(behind, rules=SOON, agent=agent, clock=clock),
        RedisStore.open(url, clock) as front,
    ):
        await asyncio.to_thread(until, is_heard(server, prefix))
        if way == "horizon":
            monkeypatch.setattr(front._queues[0], "_hint", lambda *_: None)
        for number in range(2):
            answer = await say(front, f"m{number}", key=key(number), rules=SOON)
            await quiet(behind)  # the worker sleeps, and for how long is what counts
            await clock.advance(SOON.silence_ms if way == "hints" else HORIZON_MS)
            late = await asyncio.wait_for(agent.answers.get(), 10) - (answer.due_at or 0)
            assert 0 <= late <= HORIZON_MS


async def quiet(store: RedisStore) -> None:
    """What a process does by itself has had the time of several answers of the server to be done."""
    for _ in range(5):
        await store.next_due()


async def test_an_idle_store_hardly_asks(server: Valkey, url: str, prefix: str, clock: VirtualClock) -> None:
    """One look a second for turns and one for each shared document, a sign of life now and then, and one subscription
    for as long as nobody cuts it."""
    async with (
        RedisStore.open(url, clock) as store,
        TurnTake(store, rules=SOON, agent=Answering(clock), clock=clock),
        RedisStore.open(f"{server.url}?prefix=another", clock) as other,
    ):
        await asyncio.to_thread(until, is_heard(server, prefix))
        await quiet(other)
        with watched(server) as seen:
            for _ in range(10):
                await clock.advance(HORIZON_MS)
                await quiet(other)
    ours = [command for command in seen if any(word.startswith(prefix) for word in command.words)]
    alive = [command for command in ours if command.words[1] == f"{prefix}:workers"]
    assert len(alive) <= 2 * 10 * HORIZON_MS / JOIN_MS
    shared = [command for command in ours if command.words[1] in (f"{prefix}:doc:rules", f"{prefix}:doc:keys")]
    assert len(shared) <= 2 * 11
    assert 10 <= len(ours) - len(alive) - len(shared) <= 11, Counter(command.name for command in ours)
    assert not [command for command in seen if "SUBSCRIBE" in command.name]


async def test_two_databases_of_a_server_do_not_hear_each_other(server: Valkey, clock: VirtualClock) -> None:
    """Channels have no database, and turn ids are alike everywhere: a hint would stop another's answer."""
    async with RedisStore.open(f"{server.url}/0", clock) as one, RedisStore.open(f"{server.url}/1", clock) as other:
        assert backend_of(one).hints.channel != backend_of(other).hints.channel
