"""Servers that fall silent, say no, fill up or die: nothing is lost, and the store goes on by itself."""

import asyncio
import secrets
import threading
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import BusyLoadingError, OutOfMemoryError, RedisError

from harness.databases import ALWAYS, Valkey, until
from harness.proxy import Proxy
from harness.redis_store import backend_of
from harness.writing import ROOMY, again, key, written_while_killed
from turntake.buffer.redis.backend import RedisStore
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Answered, Progress, Touch
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, LEASE_MS, OFF, PLAIN, ids_of, open_ids, say, take

pytestmark = pytest.mark.usefixtures("no_errors_are_left_behind")


@pytest.fixture
def store(proxied_store: RedisStore) -> RedisStore:
    return proxied_store


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
        assert await store.next_due() is not None
        with pytest.raises(StoreUnavailable):
            await store.check()
        with pytest.raises(StoreUnavailable):
            async with RedisStore.open(server.url, clock):
                pass
    finally:
        server.ask("REPLICAOF", "NO", "ONE")
    assert (await say(store, "m2", rules=OFF)).seq == 2
    await store.check()


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


async def test_a_full_server_takes_no_message_and_harms_nothing(server: Valkey, store: RedisStore) -> None:
    """noeviction: the write is refused whole, and what is there stays. It says so, and goes on when there is room."""
    await say(store, "m1", rules=OFF)
    before = dump(server)
    server.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable, match=r"(?i)memory"):
            await say(store, "m2", rules=OFF)
        assert await open_ids(store) == ["m1"]
    finally:
        server.ask("CONFIG", "SET", "maxmemory", 0)
    assert dump(server) == before
    assert (await say(store, "m2", rules=OFF)).seq == 2


async def test_a_full_server_lets_all_that_it_has_be_answered(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """Only answers make room. A message that is refused beside them costs them nothing, and a worker may start."""
    for person in (ANN, BOB):
        await say(store, "m1", key=person, rules=OFF)
    server.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        async with RedisStore.open(server.url, clock) as worker:
            await worker.touch(ANN, Touch("flush"), PLAIN)
            claims = await worker.claim(5, LEASE_MS)
            assert [claim.key for claim in claims] == [ANN, BOB]
            assert await worker.extend(claims, LEASE_MS) == [True, True]
            assert await worker.save(claims[0], Progress(("hello",), 0, True))
            *settled, said = await asyncio.gather(
                *(worker.settle(claim, Answered(("hello",))) for claim in claims),
                say(worker, "m2", key=key(1), rules=OFF),
                return_exceptions=True,
            )
            assert settled == [True, True]
            assert isinstance(said, StoreUnavailable)
    finally:
        server.ask("CONFIG", "SET", "maxmemory", 0)
    assert await open_ids(store) == []


def dump(server: Valkey) -> dict[bytes, Any]:
    """All that is there."""
    names = server.ask("KEYS", "*")
    return {name: server.ask("DUMP", name.decode()) for name in names}


async def test_a_server_without_memory_even_for_answers_is_unavailable(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some that speak like Redis refuse every script once they are full: it is not asked again and again."""
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    asked: list[Any] = []

    async def write(*call: Any) -> Any:
        asked.append(call)
        raise OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")

    monkeypatch.setattr(backend_of(store)._swapper, "_write", write)
    with pytest.raises(StoreUnavailable):
        await store.settle(claim, Answered())
    assert len(asked) == 1


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
    with Valkey(tmp_path, ALWAYS) as server:
        async with RedisStore.open(server.url, VirtualClock()) as store:
            acknowledged = await written_while_killed(server, store)
            stored: list[str] = []
            for number in range(4):
                found = await store.find(key(number))
                assert found is not None
                assert [message.seq for message in found.messages] == list(range(1, len(found.messages) + 1))
                stored += ids_of(found)
            assert sorted(stored) == sorted(acknowledged)
            assert backend_of(store).lost == 0
            assert await store.rebuild() == 0
