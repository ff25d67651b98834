"""The indexes are derived from the rows: what they say can be lost or wrong, and is put right."""

import asyncio

import pytest

from harness.databases import Valkey
from harness.redis_store import entries_of, live_a_full_life, shard_of
from harness.writing import key
from turntake.buffer.engine.backend import UNREADABLE_MS
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.claiming import RESERVED_MS
from turntake.rules.conversation import Answered, Dead
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, LEASE_MS, OFF, say, take


async def test_lost_indexes_are_rebuilt_from_the_rows(server: Valkey, store: RedisStore, clock: VirtualClock) -> None:
    """Deadlines, letters, closed turns and each conversation's turns; rebuilding again finds nothing to do."""
    await live_a_full_life(store, clock)
    shard = shard_of(store)
    before = [entries_of(server, name) for name in (shard.due, shard.closed, shard.letters, shard.turns(key(0)))]
    assert all(before[:1])
    entries = sum(map(len, before)) - len(before[3])
    turns = [server.ask("ZCARD", shard.turns(key(number))) for number in range(6)]
    for name in (shard.due, shard.closed, shard.letters, *(shard.turns(key(number)) for number in range(6))):
        server.ask("DEL", name)
    assert await store.next_due() is None
    rebuilt = await store.rebuild()
    after = [entries_of(server, name) for name in (shard.due, shard.closed, shard.letters, shard.turns(key(0)))]
    assert after == before
    assert [server.ask("ZCARD", shard.turns(key(number))) for number in range(6)] == turns
    assert rebuilt == entries + sum(turns)
    assert await store.rebuild() == 0


async def test_wrong_indexes_are_put_right(server: Valkey, store: RedisStore, clock: VirtualClock) -> None:
    """Too early, too late, idle, of nobody; and a letter among the closed, which forgetting would drop."""
    for number in range(3):
        await say(store, "m1", key=key(number))
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    await store.settle(claim, Dead("no"))
    shard = shard_of(store)
    right = entries_of(server, shard.due)
    server.ask("ZADD", shard.due, 1, str(key(0)), "+inf", str(key(1)), 2**50, str(key(2)))
    server.ask("ZADD", shard.due, 5, str(key(99)))
    server.ask("ZADD", shard.closed, 5, claim.turn.id)
    server.ask("ZADD", shard.letters, 5, f"turn_{'0' * 20}")
    assert await store.rebuild() == 6
    assert entries_of(server, shard.due) == right
    assert entries_of(server, shard.closed) == []
    assert [letter.id for letter in (await store.letters.list(5)).items] == [claim.turn.id]
    assert await store.rebuild() == 0


async def test_rows_of_which_earlier_releases_left_nothing_else_are_dropped(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """Conversations that are idle and have no message, id or turn any more; one that has a turn stays, also if the
    list of its turns was lost."""
    for name in (ANN, BOB):
        await say(store, "m1", key=name, rules=OFF)
        await store.settle(await take(store), Answered())
    shard = shard_of(store)
    (turn,) = await store.history.turns(ANN, 1)
    server.ask("HDEL", shard.conversation(ANN), "m1", "im1")
    server.ask("DEL", shard.turns(ANN), shard.turn(turn.id))
    server.ask("ZREM", shard.closed, turn.id)
    server.ask("HDEL", shard.conversation(BOB), "m1", "im1")
    server.ask("DEL", shard.turns(BOB))
    assert await store.rebuild() == 1
    assert await store.find(ANN) is None
    assert [member for member, _ in entries_of(server, shard.due)] == [str(BOB).encode()]
    assert len(await store.history.turns(BOB, 5)) == 1
    assert (await say(store, "m1")).seq == 1


async def test_an_entry_whose_row_is_gone_rings_once_and_no_more(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """As after a loss on the server: workers must not wake for it twice a second for ever."""
    server.ask("ZADD", shard_of(store).due, 5, str(ANN))
    assert await store.claim(5, LEASE_MS) == []
    await clock.advance(RESERVED_MS)
    assert await store.claim(5, LEASE_MS) == []
    assert await store.next_due() is None


async def test_an_entry_that_is_no_key_stops_nobody(
    server: Valkey, store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever wrote that: the others are claimed, and listed."""
    await say(store, "m1", rules=OFF)
    server.ask("ZADD", shard_of(store).due, 5, "what is this")
    assert (await take(store, limit=5)).key == ANN
    assert "cannot be read" in caplog.text


async def test_a_row_that_cannot_be_read_is_put_off_and_holds_up_nobody(
    server: Valkey, store: RedisStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the earliest. The others are claimed, and their index can be rebuilt."""
    await say(store, "m1", key=BOB, rules=OFF)
    await clock.advance(1)
    await say(store, "m1", "m2", rules=OFF)
    shard = shard_of(store)
    server.ask("HSET", shard.conversation(BOB), "b", "\xff\xff")
    assert (await take(store, limit=5)).key == ANN
    assert "A conversation cannot be read" in caplog.text
    for pause_ms, reports in ((RESERVED_MS, 1), (UNREADABLE_MS - RESERVED_MS - 1, 1), (1, 2)):
        await clock.advance(pause_ms)
        await store.claim(5, LEASE_MS)
        assert caplog.text.count("A conversation cannot be read") == reports
    server.ask("ZREM", shard.due, str(ANN))
    assert await store.rebuild() == 1


async def test_rebuilding_while_others_write_harms_nothing(url: str, store: RedisStore, clock: VirtualClock) -> None:
    """A deadline that moved since the row was read is left alone."""
    is_over = False

    async def rebuild() -> int:
        wrong, laps = 0, 0
        async with RedisStore.open(url, clock) as other:
            while not is_over:
                wrong += await other.rebuild()
                laps += 1
        assert laps > 3
        return wrong

    rebuilding = asyncio.create_task(rebuild())
    for number in range(12):
        await asyncio.gather(*(say(store, f"m{number}", key=key(c), rules=OFF) for c in range(20)))
        for claim in await store.claim(20, LEASE_MS):
            assert await store.settle(claim, Answered() if number % 2 else Dead("no"))
        await clock.advance(1)
    is_over = True
    await rebuilding
    assert await store.next_due() is None
    assert await store.claim(5, LEASE_MS) == []
    assert await store.rebuild() == 0
