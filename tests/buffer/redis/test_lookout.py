"""What a process knows of the deadlines, and when it looks again."""

import pytest

from harness.databases import Valkey
from harness.redis_store import backend_of, watched
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.keys import IDLE_WRITTEN
from turntake.buffer.redis.lookout import DEEPEST, RedisLookout
from turntake.buffer.store import HORIZON_MS
from turntake.rules.watch import ALONE, JOIN_MS, OVERDUE_MS, SLICE_MS, STAGGER_MS, Place, wake_at
from turntake.testing.clock import VirtualClock

CREW = 12
FIRST = Place(0, CREW)
SHARDS = 64
OWN_SHARD, ANOTHERS_SHARD = 0, 5


def is_ours(due_at: int) -> bool:
    """Whether the first of the crew wakes for it in time, if there is one shard."""
    return wake_at(FIRST, 0, 1, due_at) == due_at


def is_others(due_at: int) -> bool:
    return wake_at(FIRST, 0, 1, due_at) is None


# What is due within a moment is for others to claim, and what comes after it is ours.
NOW = next(at for at in range(1_000_000, 2_000_000, SLICE_MS) if is_others(at) and is_ours(at + SLICE_MS))
OTHERS_AT = NOW + OVERDUE_MS
OWN_AT = NOW + SLICE_MS


def due(server: Valkey, lookout: RedisLookout, shard: int, *deadlines: int | str) -> None:
    """Other processes set these deadlines, and no hint of them came."""
    for number, due_at in enumerate(deadlines):
        server.ask("ZADD", lookout._shards[shard].due, due_at, f"ann{number:02}@{due_at}")


@pytest.fixture
async def lookout(store: RedisStore) -> RedisLookout:
    """Of a store with one shard."""
    return backend_of(store).lookout


async def test_a_change_of_place_puts_off_no_look(server: Valkey, url: str, clock: VirtualClock) -> None:
    """What others watched until now may be for this one to wake for."""
    async with RedisStore.open(f"{url}&shards={SHARDS}", clock) as store:
        lookout = backend_of(store).lookout
        due(server, lookout, ANOTHERS_SHARD, NOW + 500)
        lookout.take_place(FIRST)
        assert await lookout.next_look(NOW) is None
        lookout.take_place(ALONE)
        assert await lookout.next_look(NOW) == NOW + 500


async def test_a_later_deadline_puts_off_no_look(server: Valkey, url: str, clock: VirtualClock) -> None:
    """A hint of it says nothing about those before it."""
    async with RedisStore.open(f"{url}&shards={SHARDS}", clock) as store:
        lookout = backend_of(store).lookout
        due(server, lookout, OWN_SHARD, NOW + 500)
        lookout.take_place(FIRST)
        assert await lookout.next_look(NOW) == NOW + 500
        lookout.expect(OWN_SHARD, NOW + 900)
        assert await lookout.next_look(NOW) == NOW + 500


async def test_after_a_change_of_place_it_also_looks_where_it_looked_before(
    server: Valkey, url: str, clock: VirtualClock
) -> None:
    """Until the next time it says that it lives: by then the others have heard of the change too."""
    async with RedisStore.open(f"{url}&shards={SHARDS}", clock) as store:
        lookout = backend_of(store).lookout
        lookout.take_place(FIRST)
        changed = Place(6, CREW)
        lookout.take_place(changed)
        assert await lookout.next_look(NOW) is None
        due(server, lookout, OWN_SHARD, NOW)
        assert await lookout.next_look(NOW + HORIZON_MS) == NOW + HORIZON_MS
        server.ask("DEL", lookout._shards[OWN_SHARD].due)
        assert await lookout.next_look(NOW + 2 * HORIZON_MS) is None
        lookout.take_place(changed)
        due(server, lookout, OWN_SHARD, NOW)
        assert await lookout.next_look(NOW + 3 * HORIZON_MS) is None


async def test_a_look_sees_past_what_others_watch(server: Valkey, lookout: RedisLookout) -> None:
    """With many workers on one shard, the earliest deadline is seldom one's own."""
    due(server, lookout, 0, OTHERS_AT, OWN_AT)
    lookout.take_place(FIRST)
    assert await lookout.next_look(NOW) == OWN_AT


@pytest.mark.parametrize(("now", "again_at"), [(NOW, OTHERS_AT), (OTHERS_AT + 1, OTHERS_AT + 1 + STAGGER_MS)])
async def test_behind_many_deadlines_of_others_it_looks_again(
    server: Valkey, lookout: RedisLookout, now: int, again_at: int
) -> None:
    """By when they are claimed; if that is now, a moment later, and not at once over and over."""
    due(server, lookout, 0, *[OTHERS_AT] * 2 * CREW, OWN_AT)
    lookout.take_place(FIRST)
    assert await lookout.next_look(now) == again_at


async def test_what_is_due_is_found_behind_what_others_are_claiming(server: Valkey, lookout: RedisLookout) -> None:
    """They have a moment for it; meanwhile it is not in the way."""
    due(server, lookout, 0, *[OWN_AT - 1] * 5, OWN_AT)
    lookout.take_place(FIRST)
    with watched(server) as seen:
        assert await lookout.due(1, OWN_AT) == [(0, f"ann05@{OWN_AT}")]
    (read,) = [command.words for command in seen if command.name == "ZRANGE"]
    assert read[-2] == str(1 + DEEPEST), "and no more is read, however much is due"


async def test_whoever_is_idle_has_no_deadline(server: Valkey, lookout: RedisLookout) -> None:
    due(server, lookout, 0, IDLE_WRITTEN)
    assert await lookout.next_look(NOW) is None


async def test_a_worker_takes_the_names_of_the_dead_away_once(server: Valkey, lookout: RedisLookout) -> None:
    """Every second after that, it only says that it lives."""
    await lookout.join("worker", NOW)
    with watched(server) as seen:
        assert await lookout.join("worker", NOW + JOIN_MS) == ["worker"]
    assert [command.name for command in seen if command.name.startswith("Z")] == ["ZADD", "ZRANGE"]
