"""Replies that are lost: what was asked for has happened, and nobody is told."""

import asyncio
from typing import Any

import pytest
import uvloop
from redis.exceptions import ConnectionError as ConnectionLost

from harness.databases import Valkey
from harness.proxy import Proxy, proxying
from harness.redis_store import backend_of, shard_of
from harness.writing import ROOMY, Tally, Writers, key
from turntake.buffer.redis import archive, claiming
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.scripts import FORGET, RESERVE_DUE
from turntake.buffer.redis.swap import BEHIND_MS, SwapCall
from turntake.clock import SystemClock
from turntake.rules.conversation import Answered, Dead, Progress, Touch
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, LEASE_MS, OFF, PLAIN, ids_of, open_ids, say, take

pytestmark = pytest.mark.usefixtures("no_errors_are_left_behind")


@pytest.fixture
def store(proxied_store: RedisStore) -> RedisStore:
    return proxied_store


BREAKS = 6


def losing(store: RedisStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply to each write is lost once; those to reads come."""
    write = backend_of(store)._swapper._write

    async def write_and_lose(*given: Any) -> Any:
        proxy.drop_next_reply()
        return await write(*given)

    monkeypatch.setattr(backend_of(store)._swapper, "_write", write_and_lose)


async def test_a_lost_reply_repeats_no_verb_and_changes_no_answer(
    server: Valkey, store: RedisStore, proxy: Proxy, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py sends again by itself, and a plain script would run twice: each verb here loses its reply once."""
    losing(store, proxy, monkeypatch)
    answers = await store.append([Append(ANN, Message(id), ROOMY) for id in ("m1", "m2")])
    assert [(answer.status, answer.seq) for answer in answers] == [("buffered", 1), ("buffered", 2)]
    assert (await say(store, "m2", rules=ROOMY)).status == "duplicate"
    touched = await store.touch(ANN, Touch("hold", 1_000), PLAIN)
    assert touched is not None
    await clock.advance(60_000)
    claim = await take(store)
    assert (claim.turn.attempt, ids_of(claim)) == (1, ["m1", "m2"])
    assert await store.extend([claim], LEASE_MS) == [True]
    assert await store.save(claim, Progress(("hello",), 0))
    assert await store.settle(claim, Dead("no"))
    retried = await store.letters.retry(claim.turn.id)
    assert retried is not None
    assert retried.next_seq == 5
    second = await take(store)
    assert (second.turn.attempt, ids_of(second)) == (1, ["m1", "m2"])
    assert await store.settle(second, Dead("no"))
    assert await store.letters.discard(second.turn.id)
    assert not await store.letters.discard(second.turn.id)
    assert proxy.dropped_replies == 11
    assert server.ask("HGET", "turntake:{s0}:counts", "messages") == b"2"
    async with RedisStore.open(server.url, clock) as other:
        assert await open_ids(other) == []
        assert len(await other.history.turns(ANN, 9)) == 2
        assert await other.rebuild() == 0


async def test_calls_one_after_the_other_are_remembered_in_one_field(server: Valkey, store: RedisStore) -> None:
    """Each that is under way has its own; a field for each that ever was would fill the server."""
    for number in range(20):
        await say(store, f"m{number}")
    fields = server.ask("HKEYS", shard_of(store).counts)
    assert len([field for field in fields if field.startswith(b"d")]) == 1


async def test_a_lost_reply_to_forgetting_drops_no_more_and_tells_the_number(
    store: RedisStore, proxy: Proxy, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks until nothing is dropped would stop too early at a zero."""
    for number in range(3):
        await say(store, "m1", key=key(number), rules=OFF)
    for claim in await store.claim(3, LEASE_MS):
        await store.settle(claim, Answered())
    await clock.advance(1_000)
    await say(store, "m2", key=key(0), rules=OFF)
    await store.settle(await take(store), Answered())

    async def forget_and_lose(*args: Any) -> Any:
        proxy.drop_next_reply()
        return await FORGET(*args)

    monkeypatch.setattr(archive, "FORGET", forget_and_lose)
    dropped = await store.history.forget(clock.now())
    assert proxy.dropped_replies == 1
    assert [turn.messages[0].id for turn in await store.history.turns(key(0), 9)] == ["m2"]
    assert await store.history.turns(key(1), 9) == []
    assert (await say(store, "m2", key=key(0), rules=OFF)).status == "duplicate"
    assert dropped == 3


async def test_a_lost_offer_delays_the_claim_by_a_moment(
    store: RedisStore, proxy: Proxy, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadlines were put off and nobody knows for whom."""
    await say(store, "m1", rules=OFF)

    async def offer_and_lose(*args: Any) -> Any:
        proxy.drop_next_reply()
        return await RESERVE_DUE(*args)

    monkeypatch.setattr(claiming, "RESERVE_DUE", offer_and_lose)
    claims = await store.claim(5, LEASE_MS)
    monkeypatch.setattr(claiming, "RESERVE_DUE", RESERVE_DUE)
    await clock.advance(claiming.RESERVED_MS)
    claims += await store.claim(5, LEASE_MS)
    assert [claim.turn.attempt for claim in claims] == [1]


def answering_late(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply to each write is lost, and the same call comes again when its decision is too old by the server's
    clock. What makes it old is the time of the decision, since nobody can move the server's clock."""
    write = backend_of(store)._swapper._write

    async def write_twice(call: SwapCall, replicas: int) -> Any:
        await write(call, replicas)
        decided_at, *rest = call.args
        call.args = [int(decided_at) - BEHIND_MS - 200, *rest]
        return await write(call, replicas)

    monkeypatch.setattr(backend_of(store)._swapper, "_write", write_twice)


async def test_a_reply_lost_for_long_is_no_reason_to_decide_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repetition comes when the decision is old, but it was written in time: the answer is that of then."""
    async with RedisStore.open(url, SystemClock()) as store:
        answering_late(store, monkeypatch)
        answer = await say(store, "m1", rules=OFF)
        assert (answer.status, answer.seq) == ("buffered", 1)


async def test_a_claim_whose_reply_is_lost_for_long_is_the_callers(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nobody would have it until its lease ends."""
    async with RedisStore.open(url, SystemClock()) as store:
        await say(store, "m1", rules=OFF)
        answering_late(store, monkeypatch)
        claim = await take(store)
        assert (claim.turn.attempt, ids_of(claim)) == (1, ["m1"])


async def test_a_network_that_breaks_again_and_again_loses_nothing_and_repeats_nothing(
    server: Valkey, store: RedisStore, proxy: Proxy
) -> None:
    """Connections are cut, and replies lost, under load; whoever hears no answer sends again."""
    writers = Writers(store)
    for _ in range(BREAKS):
        proxy.drop_replies(2)
        await writers.acknowledged.more(20)
        proxy.cut()
        await writers.refused.more(4)
        proxy.heal()
        await writers.acknowledged.more(20)
    await writers.stop()
    async with RedisStore.open(server.url, VirtualClock()) as other:
        stored: list[str] = []
        for number in range(4):
            found = await other.find(key(number))
            assert found is not None
            assert [message.seq for message in found.messages] == list(range(1, len(found.messages) + 1))
            stored += ids_of(found)
    assert sorted(stored) == sorted(writers.acknowledged.ids)
    assert int(server.ask("HGET", "turntake:{s0}:counts", "messages")) == len(stored)


def test_a_connection_that_breaks_under_uvloop_is_a_lost_one(server: Valkey) -> None:
    """A closed transport raises RuntimeError there, which must come out as an outage and not as a fault of ours."""

    async def live(proxy: Proxy) -> set[str]:
        seen, tries = set[str](), Tally()
        async with RedisStore.open(f"redis://127.0.0.1:{proxy.port}?prefix=uvloop", SystemClock()) as store:

            async def write(person: int) -> None:
                for number in range(60):
                    try:
                        await say(store, f"m{number}", key=key(person))
                        await store.next_due()
                    except Exception as error:
                        seen.add(type(error).__name__)
                    tries.note(f"m{number}")

            async def cut() -> None:
                for _ in range(10):
                    await asyncio.to_thread(proxy.cut)
                    await asyncio.to_thread(proxy.heal)
                    await tries.more(40)

            await asyncio.gather(cut(), *map(write, range(20)))
        return seen

    with proxying(server.port) as proxy, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(live(proxy)) <= {"StoreUnavailable"}


async def test_a_connection_that_somebody_else_closes_is_a_lost_one(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py closes connections that are in use when a node of a cluster is gone."""
    connection = next(one for one in backend_of(store)._connections if one.is_connected)

    await connection.disconnect()

    async def closed_again(**_: object) -> None:
        """Connected, and closed before the command was written."""

    monkeypatch.setattr(connection, "connect_check_health", closed_again)
    with pytest.raises(ConnectionLost):
        await connection.send_command("PING")
