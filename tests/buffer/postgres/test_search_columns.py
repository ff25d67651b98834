"""The columns that are searched are copies of what the bodies say, and can be made again."""

from typing import Any

from harness.postgres_store import ask
from turntake.buffer.postgres.backend import PostgresStore
from turntake.rules.conversation import Answered
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import BOB, LEASE_MS, OFF, say


async def test_an_idle_look_is_one_statement_that_writes_nothing(url: str, clock: VirtualClock) -> None:
    """An idle worker sends nothing but that, once a second."""
    async with PostgresStore.open(url, clock) as store:
        await say(store, "m1")
        await store.next_due()
        sent: list[bytes] = []
        pool = store.backend._pool
        fetch = pool.fetch

        async def count(query: bytes, parameters: Any = ()) -> list[Any]:
            sent.append(query)
            return await fetch(query, parameters)

        pool.fetch = count  # type: ignore[method-assign]
        for _ in range(3):
            await clock.advance(1_000)
            await store.next_due()
    assert len(sent) == 3
    assert all(query.startswith(b"SELECT") for query in sent)


async def test_rebuild_mends_the_copies_from_the_bodies(url: str, clock: VirtualClock) -> None:
    """Deadlines come back from the conversations alone, and doing it again is harmless."""
    async with PostgresStore.open(url, clock) as store:
        await say(store, "m1", rules=OFF)
        await say(store, "m1", key=BOB, rules=OFF)
        _, bob = await store.claim(2, LEASE_MS)
        await store.settle(bob, Answered())
        await say(store, "m2", key=BOB)
        columns = "SELECT key, state, due_at, open_from FROM turntake.conversations ORDER BY key"
        right = ask(url, columns)
        assert await store.rebuild() == 0
        ask(url, "UPDATE turntake.conversations SET due_at = NULL, state = 'idle', open_from = 77")
        assert await store.next_due() is None
        assert await store.rebuild() == 2
        assert ask(url, columns) == right
        assert await store.rebuild() == 0
