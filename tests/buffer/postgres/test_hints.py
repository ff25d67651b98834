"""NOTIFY and LISTEN: few words, for those who listen now."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from harness.databases import Postgres, until
from harness.postgres_store import ask
from harness.writing import ROOMY, key
from turntake import Rules
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.postgres.backend import PostgresStore
from turntake.buffer.postgres.hints import FIRST_PAUSE_MS
from turntake.buffer.store import Hint
from turntake.clock import SystemClock
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, say


def all_heard(listener: psycopg.Connection[Any]) -> list[str]:
    """Whatever was sent so far: the server keeps the order, so a last word of our own comes after it."""
    ask(listener.info.dsn, "NOTIFY turntake, 'the end'")
    return list(itertools.takewhile("the end".__ne__, (notice.payload for notice in listener.notifies(timeout=20))))


async def test_a_notify_is_sent_only_for_what_is_due_before_the_horizon(server: Postgres, store: PostgresStore) -> None:
    """Not for each message: a hundred that wait for long are silent, and those due soon share a word."""
    with psycopg.connect(server.url, autocommit=True) as listener:
        listener.execute("LISTEN turntake")
        for number in range(100):
            await say(store, "m1", key=key(number), rules=Rules(silence_ms=5_000, typing_inference_ms=0))
        for number in range(100):
            await say(store, "m2", key=key(number), rules=Rules(silence_ms=500, typing_inference_ms=0))
        heard = all_heard(listener)
    assert 1 <= len(heard) <= store.backend.shards


async def test_no_word_is_given_of_what_was_refused(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    """It would wake everybody for nothing; one draft that is taken is enough."""
    await say(store, "m1", rules=ROOMY)

    def draft(name: ConversationKey) -> Draft:
        draft = Draft(name, Row(), clock.now())
        draft.append(Append(name, Message("m2"), ROOMY), b"")
        draft.encode()
        return draft

    with psycopg.connect(server.url, autocommit=True) as listener:
        listener.execute("LISTEN turntake")
        assert None not in await store.backend.swap(0, [draft(ANN)], Hint(7))
        assert None in await store.backend.swap(0, [draft(ANN), draft(BOB)], Hint(8))
        heard = all_heard(listener)
    assert [json.loads(payload)[0] for payload in heard] == [8]


async def test_another_process_hears_a_hint_and_one_that_is_too_long_is_cut(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    """8,000 bytes are refused by the server; the deadline alone always fits."""
    async with PostgresStore.open(server.url, clock) as other:
        hints = other.hints()
        first = asyncio.ensure_future(anext(hints))
        await asyncio.to_thread(until, lambda: ask(server.url, LISTENERS) == [(1,)])
        stopped = tuple((f"key{number}", "t" * 40, 1) for number in range(500))
        await store.backend.hints.publish(Hint(7, stopped))
        assert await asyncio.wait_for(first, 5) == Hint(7)
        await store.backend.hints.publish(Hint(8, stopped[:2]))
        assert await asyncio.wait_for(anext(hints), 5) == Hint(8, stopped[:2])
        ask(server.url, "SELECT pg_notify('turntake', 'what is this')")
        await store.backend.hints.publish(Hint(9))
        assert await asyncio.wait_for(anext(hints), 5) == Hint(9)
        await hints.aclose()  # type: ignore[attr-defined]


async def test_a_hint_of_what_is_long_overdue_lowers_where_claims_begin(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    """The row lies before the mark of whoever hears of it, who would not find it for a horizon."""
    async with PostgresStore.open(server.url, clock) as other:
        await other.next_due()
        due_at = clock.now() - 60_000
        assert other.backend._index_start.for_claim(clock.now()) > due_at
        hints = other.hints()
        first = asyncio.ensure_future(anext(hints))
        await asyncio.to_thread(until, lambda: ask(server.url, LISTENERS) == [(1,)])
        await store.backend.hints.publish(Hint(due_at))
        assert await asyncio.wait_for(first, 5) == Hint(due_at)
        assert other.backend._index_start.for_claim(clock.now()) == due_at
        await hints.aclose()  # type: ignore[attr-defined]


async def test_the_pause_before_listening_again_grows_only_while_it_fails(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it listened, a lost connection is made anew as soon as the first time."""
    pauses: list[int] = []
    works = iter([False, False, True, False, False])

    class Listening:
        async def execute(self, query: object) -> None:
            return None

        async def notifies(self) -> AsyncIterator[None]:
            raise psycopg.OperationalError("the server closed the connection")
            yield

    @asynccontextmanager
    async def connected(conninfo: str) -> AsyncIterator[Listening]:
        if not next(works):
            raise psycopg.OperationalError("refused")
        yield Listening()

    async def paused(duration_ms: int) -> None:
        pauses.append(duration_ms)

    monkeypatch.setattr("turntake.buffer.postgres.hints.direct", connected)
    monkeypatch.setattr(store.clock, "sleep", paused)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await anext(store.backend.hints.listen())
    first = FIRST_PAUSE_MS
    assert pauses == [first, 2 * first, first, 2 * first, 4 * first]


LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"


async def test_a_listener_that_lost_its_connection_listens_again(server: Postgres, store: PostgresStore) -> None:
    """Meanwhile nothing fails; the horizon finds what no word was heard of."""
    async with PostgresStore.open(server.url, SystemClock()) as other:
        hints = other.hints()
        first = asyncio.ensure_future(anext(hints))
        await asyncio.to_thread(until, lambda: ask(server.url, LISTENERS) == [(1,)])
        ask(server.url, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        await asyncio.to_thread(until, lambda: ask(server.url, LISTENERS) == [(1,)])
        await store.backend.hints.publish(Hint(7))
        assert await asyncio.wait_for(first, 5) == Hint(7)
        await hints.aclose()  # type: ignore[attr-defined]
