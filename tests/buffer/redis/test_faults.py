"""Servers that die, fill up, fall silent and change places, and networks that lose replies."""

import asyncio
import gc
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from redis.exceptions import BusyLoadingError, RedisError

from harness.databases import ALWAYS, Cluster, Sentinel, Valkey, until
from harness.proxy import Proxy, proxying
from turntake import Rules
from turntake.buffer.redis import backend as shelves
from turntake.buffer.redis import claiming
from turntake.buffer.redis.backend import RedisShelf
from turntake.buffer.redis.scripts import FORGET, RESERVE_DUE, SWAP
from turntake.buffer.redis.store import RedisStore
from turntake.clock import SystemClock
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.rules.conversation import Answered, Dead, Progress, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, LEASE_MS, OFF, PLAIN, ids_of, open_ids, say, take

BREAKS = 6
ROOMY = Rules(capacity=9_999, max_messages=9_999)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("redis"), is_safe=False) as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(autouse=True)
def no_errors_are_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An exception that nobody ever looks at is logged when it is thrown away."""
    yield
    gc.collect()
    assert not [record for record in (*caplog.get_records("call"), *caplog.records) if record.name == "asyncio"]


def shelf_of(store: RedisStore) -> RedisShelf:
    assert isinstance(store.shelf, RedisShelf)
    return store.shelf


def key(number: int) -> ConversationKey:
    return ConversationKey.of(f"c{number}")


async def again(store: RedisStore, message_id: str, key: ConversationKey = ANN, rules: Rules = ROOMY) -> Appended:
    """Sent until it is taken, as a platform does."""
    while True:
        try:
            return await say(store, message_id, key=key, rules=rules)
        except StoreUnavailable:
            await SystemClock().sleep(10)


# Replies that are lost: what was asked for has happened, and nobody is told.


@pytest.fixture
def proxy(server: Valkey) -> Iterator[Proxy]:
    with proxying(server.port) as proxy:
        yield proxy


@pytest.fixture
async def store(server: Valkey, proxy: Proxy, clock: VirtualClock) -> AsyncIterator[RedisStore]:
    """Through the proxy, on an empty server that knows the scripts: each write is one command and one reply."""
    server.ask("FLUSHALL")
    for script in (FORGET, SWAP, RESERVE_DUE):
        server.ask("SCRIPT", "LOAD", script._text)
    async with RedisStore.open(server.url.replace(str(server.port), str(proxy.port)), clock) as store:
        yield store


def losing(store: RedisStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply to each write is lost once; those to reads come."""
    write = shelf_of(store)._write

    async def write_and_lose(*given: Any) -> Any:
        proxy.drop_next_reply()
        return await write(*given)

    monkeypatch.setattr(shelf_of(store), "_write", write_and_lose)


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
    assert (claim.epoch, ids_of(claim)) == (1, ["m1", "m2"])
    assert await store.extend([claim], LEASE_MS) == [True]
    assert await store.save(claim, Progress(("hello",), 0, True))
    assert await store.settle(claim, Dead("no"))
    retried = await store.letters.retry(claim.turn.id)
    assert retried is not None
    assert retried.next_seq == 5
    second = await take(store)
    assert (second.epoch, ids_of(second)) == (2, ["m1", "m2"])
    assert await store.settle(second, Dead("no"))
    assert await store.letters.discard(second.turn.id)
    assert not await store.letters.discard(second.turn.id)
    assert proxy.dropped_replies == 11
    assert server.ask("HGET", "turntake:{s0}:counts", "messages") == b"2"
    async with RedisStore.open(server.url, clock) as other:
        assert await open_ids(other) == []
        assert len(await other.history.turns(ANN, 9)) == 2
        assert await other.rebuild() == 0


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

    monkeypatch.setattr(shelves, "FORGET", forget_and_lose)
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
    assert [claim.epoch for claim in claims] == [1]


async def with_a_late_reply(
    server: Valkey, proxy: Proxy, clock: SystemClock, work: Awaitable[Any], is_done: Callable[[], bool]
) -> Any:
    """The work's answer, when the reply was lost and the repetition comes more than a second after the decision."""
    started = clock.now()
    proxy.one_way("replies")
    working = asyncio.ensure_future(work)
    await asyncio.to_thread(until, is_done)
    await clock.sleep_until(started + shelves.BEHIND_MS + 200)
    proxy.heal()
    return await working


async def test_a_reply_lost_for_long_is_no_reason_to_decide_again(server: Valkey, proxy: Proxy) -> None:
    """The repetition comes when the decision is old, but it was written in time: the answer is that of then."""
    server.ask("FLUSHALL")
    clock = SystemClock()
    async with RedisStore.open(server.url.replace(str(server.port), str(proxy.port)), clock) as store:
        name = f"turntake:{{s0}}:c:{ANN}"
        await say(store, "m1", key=BOB)  # the server has the script from here on, or it would only say so in vain
        answer = await with_a_late_reply(
            server, proxy, clock, say(store, "m1", rules=OFF), lambda: bool(server.ask("EXISTS", name))
        )
        assert (answer.status, answer.seq) == ("buffered", 1)


async def test_a_claim_whose_reply_is_lost_for_long_is_the_callers(
    server: Valkey, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or nobody would have it until its lease ends."""
    server.ask("FLUSHALL")
    clock = SystemClock()
    async with RedisStore.open(server.url.replace(str(server.port), str(proxy.port)), clock) as store:
        await say(store, "m1", rules=OFF)
        write = shelf_of(store)._write
        name = f"turntake:{{s0}}:h:{ANN}"

        async def late(*given: Any) -> Any:
            return await with_a_late_reply(
                server, proxy, clock, write(*given), lambda: bool(server.ask("EXISTS", name))
            )

        monkeypatch.setattr(shelf_of(store), "_write", late)
        claim = await take(store)
        assert (claim.epoch, ids_of(claim)) == (1, ["m1"])


async def test_a_silent_server_is_given_up_and_found_again(
    store: RedisStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever; whoever waited in line is told at the same time."""
    await say(store, "m0", rules=ROOMY)
    proxy.blackhole()
    batch = store.append([Append(key(number), Message("m1"), ROOMY) for number in range(3)])
    async with asyncio.timeout(12):
        answers = await asyncio.gather(say(store, "m1", rules=ROOMY), batch, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    proxy.heal()
    assert (await again(store, "m1")).seq == 2


async def test_a_network_that_breaks_again_and_again_loses_nothing_and_repeats_nothing(
    server: Valkey, store: RedisStore, proxy: Proxy
) -> None:
    """Connections are cut, and replies lost, under load; whoever hears no answer sends again."""
    acknowledged: list[str] = []
    breaks = 0

    async def write(writer: int) -> None:
        number = 0
        while breaks < BREAKS:
            await again(store, f"{writer}-{number}", key(writer % 3))
            acknowledged.append(f"{writer}-{number}")
            number += 1

    writing = asyncio.gather(*(write(writer) for writer in range(9)))
    while not writing.done():
        proxy.drop_replies(2)
        await asyncio.wait([writing], timeout=0.03)
        proxy.cut()
        await asyncio.wait([writing], timeout=0.02)
        proxy.heal()
        breaks += 1
        await asyncio.wait([writing], timeout=0.05)
    await writing
    async with RedisStore.open(server.url, VirtualClock()) as other:
        stored: list[str] = []
        for number in range(3):
            found = await other.find(key(number))
            assert found is not None
            assert [message.seq for message in found.messages] == list(range(1, len(found.messages) + 1))
            stored += ids_of(found)
    assert sorted(stored) == sorted(acknowledged)
    assert int(server.ask("HGET", "turntake:{s0}:counts", "messages")) == len(acknowledged) > 9


# Servers that say no.


async def test_a_replica_takes_nothing_and_says_so(server: Valkey, store: RedisStore, clock: VirtualClock) -> None:
    """As when a failover made the old primary a replica and connections still lead there. Reads go on."""
    await say(store, "m1", rules=OFF)
    server.ask("REPLICAOF", "127.0.0.1", 1)
    try:
        for work in (say(store, "m2", rules=OFF), store.claim(5, LEASE_MS)):
            with pytest.raises(StoreUnavailable, match=r"(?i)read.?only"):
                await work
        assert await open_ids(store) == ["m1"]
        with pytest.raises(StoreUnavailable):
            async with RedisStore.open(server.url, clock):
                pass
    finally:
        server.ask("REPLICAOF", "NO", "ONE")
    assert (await say(store, "m2", rules=OFF)).seq == 2


async def test_a_server_busy_with_somebodys_script_is_unavailable(server: Valkey, store: RedisStore) -> None:
    """BUSY is no answer; once the script has ended, everything goes on."""
    server.ask("CONFIG", "SET", "busy-reply-threshold", 50)

    def hog() -> None:
        with pytest.raises(RedisError):
            server.ask("EVAL", "while true do end", 0)

    hogging = threading.Thread(target=hog)
    hogging.start()
    try:
        await asyncio.to_thread(until, lambda: is_refused(server, "BUSY"))
        with pytest.raises(StoreUnavailable, match=r"(?i)busy"):
            await say(store, "m1")
    finally:
        server.ask("SCRIPT", "KILL")
        hogging.join()
    assert (await say(store, "m1")).status == "buffered"


def is_refused(server: Valkey, word: str) -> bool:
    try:
        server.ask("PING")
    except RedisError as error:
        return word.lower() in str(error).lower()
    return False


async def test_a_server_that_still_loads_is_unavailable(tmp_path: Path, clock: VirtualClock) -> None:
    """After a restart, until everything is back; then nothing is missing."""
    slow = ("key-load-delay 20000", "loading-process-events-interval-bytes 1024")
    with Valkey(tmp_path, ALWAYS, *slow) as server:
        async with RedisStore.open(server.url, clock) as store:
            await say(store, "m1", rules=ROOMY)
            for number in range(100):
                server.ask("SET", f"other{number}", secrets.token_hex(500))
            server.ask("BGREWRITEAOF")
            await asyncio.to_thread(until, lambda: not server.ask("INFO", "persistence")["aof_rewrite_in_progress"])
            await asyncio.to_thread(server.kill)
            starting = asyncio.create_task(asyncio.to_thread(server.start))
            await asyncio.to_thread(until, lambda: is_loading(server))
            with pytest.raises(StoreUnavailable, match=r"(?i)loading"):
                await say(store, "m2", rules=ROOMY)
            assert not starting.done()
            await starting
            assert (await again(store, "m2")).seq == 2


def is_loading(server: Valkey) -> bool:
    try:
        server.ask("GET", "x")
    except BusyLoadingError:
        return True
    return False


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
            expiring = [name for name in server.ask("KEYS", "*") if server.ask("PTTL", name.decode()) != -1]
            assert expiring
            assert all(b":done:" in name for name in expiring)
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


async def test_a_full_server_takes_nothing_harms_nothing_and_goes_on_when_there_is_room(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """noeviction: the write is refused whole, and what is there stays."""
    await say(store, "m1", rules=OFF)
    await say(store, "m1", key=BOB, rules=OFF)
    before = dump(server)
    server.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        for work in (say(store, "m2", rules=OFF), store.claim(5, LEASE_MS), store.touch(ANN, Touch("flush"), PLAIN)):
            with pytest.raises(StoreUnavailable, match=r"(?i)memory"):
                await work
        assert await open_ids(store) == ["m1"]
    finally:
        server.ask("CONFIG", "SET", "maxmemory", 0)
    assert dump(server) == before
    assert (await say(store, "m2", rules=OFF)).seq == 2
    assert len(await store.claim(5, LEASE_MS)) == 2


def dump(server: Valkey) -> dict[bytes, Any]:
    """All that is there, but for memories of calls."""
    names = [name for name in server.ask("KEYS", "*") if b":done:" not in name]
    return {name: server.ask("DUMP", name.decode()) for name in names}


async def test_a_full_server_can_still_forget(server: Valkey, store: RedisStore, clock: VirtualClock) -> None:
    """The one thing that makes room must not need any."""
    await say(store, "m1", rules=OFF)
    await store.settle(await take(store), Answered())
    await clock.advance(1)
    server.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        assert await store.history.forget(clock.now()) == 1
    finally:
        server.ask("CONFIG", "SET", "maxmemory", 0)


# Servers that die.


async def test_a_killed_server_comes_back_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    """kill -9 in the middle of writes, twice: nothing is lost or doubled, its scripts are sent again, and nobody
    has to restart the store."""
    acknowledged: list[str] = []
    with Valkey(tmp_path, ALWAYS) as server:
        async with RedisStore.open(server.url, VirtualClock()) as store:

            async def write(writer: int) -> None:
                number = 0
                while not is_over:
                    number += 1
                    await again(store, f"{writer}-{number}", key(writer % 4))
                    acknowledged.append(f"{writer}-{number}")

            is_over = False
            writing = asyncio.gather(*(write(writer) for writer in range(8)))
            for _ in range(2):
                before = len(acknowledged)
                while len(acknowledged) < before + 100:
                    await asyncio.wait([writing], timeout=0.01)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            before = len(acknowledged)
            while len(acknowledged) < before + 20:
                await asyncio.wait([writing], timeout=0.01)
            is_over = True
            await writing
            stored: list[str] = []
            for number in range(4):
                found = await store.find(key(number))
                assert found is not None
                assert [message.seq for message in found.messages] == list(range(1, len(found.messages) + 1))
                stored += ids_of(found)
            assert sorted(stored) == sorted(acknowledged)
            assert shelf_of(store).lost == 0
            assert await store.rebuild() == 0


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Sentinel]:
    with Sentinel(tmp_path, down_after_ms=500) as pair:
        yield pair


def cut_off(pair: Sentinel) -> None:
    """The replica gets nothing more, and what is under way to it is lost."""
    pair.replica.pause()
    pair.primary.ask("CLIENT", "KILL", "TYPE", "replica")


def fail_over(pair: Sentinel) -> None:
    """The primary dies for good, and the replica takes its place."""
    old = pair.primary.port
    pair.primary.kill()
    pair.replica.resume()
    until(lambda: pair.primary_port() != old)
    until(lambda: pair.replica.ask("INFO", "replication")["role"] == "master")


def is_replicated(pair: Sentinel) -> bool:
    primary, replica = (one.ask("INFO", "replication") for one in (pair.primary, pair.replica))
    return bool(replica["master_link_status"] == "up" and replica["slave_repl_offset"] >= primary["master_repl_offset"])


async def test_what_a_failover_took_is_counted_and_reported(
    pair: Sentinel, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing waits for the replica by default: the store cannot prevent the loss, but it does not hide it."""
    async with RedisStore.open(pair.url, clock) as store:
        for number in range(3):
            await say(store, f"kept-{number}", rules=ROOMY)
        await asyncio.to_thread(until, lambda: is_replicated(pair))
        await asyncio.to_thread(cut_off, pair)
        for number in range(2):
            await say(store, f"lost-{number}", rules=ROOMY)
            await SystemClock().sleep(2)
        await asyncio.to_thread(fail_over, pair)
        async with asyncio.timeout(15):
            await again(store, "new-1", BOB)
            await again(store, "new-2")
        assert await open_ids(store) == ["kept-0", "kept-1", "kept-2", "new-2"]
        assert shelf_of(store).lost == 2, "though as many are new"
    records = [record for record in caplog.records if "lost messages" in record.message]
    assert [(record.levelno, record.lost) for record in records] == [(logging.ERROR, 2)]  # type: ignore[attr-defined]


async def test_with_wait_nothing_acknowledged_is_lost_in_a_failover(pair: Sentinel, clock: VirtualClock) -> None:
    """What no replica has in time is not acknowledged, however often it is sent."""
    async with RedisStore.open(f"{pair.url}?wait=1&wait_ms=200", clock) as store:
        acknowledged = ["m0", "m1"]
        for message_id in acknowledged:
            assert (await say(store, message_id, rules=ROOMY)).status == "buffered"
        await asyncio.to_thread(cut_off, pair)
        for message_id in ("m2", "m2", "m1"):
            with pytest.raises(StoreUnavailable, match="replicas"):
                await say(store, message_id, rules=ROOMY)
        await asyncio.to_thread(fail_over, pair)
        assert await found_again(store) == acknowledged
        assert shelf_of(store).lost == 0
        with pytest.raises(StoreUnavailable, match="replicas"):
            await say(store, "m3", rules=ROOMY)


async def found_again(store: RedisStore) -> list[str]:
    """What the new primary has, once the store has found it."""
    while True:
        try:
            return await open_ids(store)
        except StoreUnavailable:
            continue


async def test_a_failover_that_loses_nothing_costs_seconds(pair: Sentinel, clock: VirtualClock) -> None:
    """Writers that send again until they are answered lose nothing, and the store finds the new primary by itself."""
    async with RedisStore.open(pair.url, clock) as store:
        for number in range(20):
            await say(store, f"m{number}", key=key(number % 4), rules=ROOMY)
        await asyncio.to_thread(until, lambda: is_replicated(pair))
        await asyncio.to_thread(pair.primary.kill)
        async with asyncio.timeout(15):
            for number in range(20, 40):
                await again(store, f"m{number}", key(number % 4))
        stored = [message_id for number in range(4) for message_id in await open_ids(store, key(number))]
        assert sorted(stored) == sorted(f"m{number}" for number in range(40))
        assert shelf_of(store).lost == 0
        assert await store.rebuild() == 0


async def test_a_row_that_went_back_in_a_failover_is_not_taken_for_the_one_remembered(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """The failover took a write away, and another process wrote the next one since: the same version, another row.
    Whoever remembers the lost one must not write over what was acknowledged afterwards."""
    await say(store, "m1", rules=OFF)
    replicated = dump(server)
    await say(store, "m2", rules=OFF)
    server.ask("FLUSHALL")
    with server.client() as client:
        for name, value in replicated.items():
            client.restore(name, 0, value)
    async with RedisStore.open(server.url, clock) as other:
        claim = await take(other)
        await say(store, "m3", rules=OFF)
        assert await other.extend([claim], LEASE_MS) == [True]
        assert await store.claim(5, LEASE_MS) == []
        assert await open_ids(other) == ["m1", "m3"]


@pytest.mark.parametrize("kind", ["server", "cluster"])
async def test_with_wait_and_no_replica_nothing_is_acknowledged(tmp_path: Path, clock: VirtualClock, kind: str) -> None:
    """WAIT goes on the connection that wrote, also to a cluster's node; what is there may still be read."""
    servers = Valkey(tmp_path, is_safe=False) if kind == "server" else Cluster(tmp_path, 1, is_safe=False)
    with servers:
        async with RedisStore.open(f"{servers.url}?wait=1&wait_ms=50", clock) as store:
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="replicas"):
                    await say(store, "m1", rules=OFF)
            assert await open_ids(store) == ["m1"]
        async with RedisStore.open(servers.url, clock) as store:
            assert (await say(store, "m1", rules=OFF)).status == "duplicate"
            assert ids_of(await take(store)) == ["m1"]


def test_a_connection_that_breaks_under_uvloop_is_a_lost_one(server: Valkey) -> None:
    """A closed transport raises RuntimeError there, which must come out as an outage and not as a fault of ours."""

    async def live(proxy: Proxy) -> set[str]:
        seen: set[str] = set()
        async with RedisStore.open(f"redis://127.0.0.1:{proxy.port}?prefix=uvloop", SystemClock()) as store:

            async def write(person: int) -> None:
                for number in range(60):
                    try:
                        await say(store, f"m{number}", key=key(person))
                        await store.next_due()
                    except Exception as error:
                        seen.add(type(error).__name__)

            async def cut() -> None:
                for _ in range(10):
                    await asyncio.to_thread(proxy.cut)
                    await asyncio.to_thread(proxy.heal)
                    await store.clock.sleep(20)

            await asyncio.gather(cut(), *map(write, range(20)))
        return seen

    with proxying(server.port) as proxy, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(live(proxy)) <= {"StoreUnavailable"}
