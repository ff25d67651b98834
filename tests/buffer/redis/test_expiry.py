"""What Redis may throw away by itself: the memory of single calls, and nothing that anybody said."""

from collections.abc import AsyncIterator, Iterator

import pytest

from harness.databases import Valkey
from turntake.buffer.redis.keys import Shard
from turntake.buffer.redis.store import RedisStore
from turntake.rules.conversation import Answered, Dead, Progress
from turntake.rules.key import ConversationKey
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, LEASE_MS, OFF, ids_of, say, take


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("redis"), is_safe=False) as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(server: Valkey, clock: VirtualClock) -> AsyncIterator[RedisStore]:
    server.ask("FLUSHALL")
    async with RedisStore.open(server.url, clock) as store:
        yield store


async def test_nothing_that_was_said_ever_expires(server: Valkey, store: RedisStore) -> None:
    """Conversations that wait, are answered, are being answered or failed, their turns, letters and indexes: an expiry
    on any of their keys would lose it without a word, on a clock that no test moves."""
    for name in ("waiting", "answered", "saved", "dead"):
        await say(store, "m1", key=ConversationKey.of(name), rules=OFF)
    claims = {claim.key.conversation: claim for claim in await store.claim(4, LEASE_MS)}
    await store.settle(claims["answered"], Answered(("hello",)))
    await store.save(claims["saved"], Progress(("hello",), 0, True))
    await store.settle(claims["dead"], Dead("no"))
    await say(store, "m2", key=ConversationKey.of("waiting"))
    names: list[str] = [name.decode() for name in server.ask("KEYS", "*")]
    assert len([name for name in names if ":c:" in name]) == 4
    assert [name for name in names if server.ask("PTTL", name) != -1 and ":done:" not in name] == []


async def test_a_claim_goes_by_the_row_and_not_by_the_index(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """The index says that a conversation is due, as after a loss on the server: nobody is handed over early, and the
    index is put right on the way."""
    answer = await say(store, "m1")
    server.ask("ZADD", Shard("turntake", 0).due, 1, str(ANN))
    assert await store.next_due() == 1
    assert await store.claim(5, LEASE_MS) == []
    assert await store.next_due() == answer.due_at == clock.now() + 1_000
    await clock.advance(1_000)
    assert ids_of(await take(store)) == ["m1"]
