"""How due conversations are found, offered and claimed, and what may happen in between."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from harness.databases import Postgres
from harness.postgres_store import ask, make
from harness.proxy import proxying
from harness.writing import key
from turntake import Rules, Turn, TurnTake
from turntake.buffer.postgres import backend, claiming
from turntake.buffer.postgres.backend import PostgresStore
from turntake.buffer.postgres.claiming import PART_BYTES, PostgresOffer
from turntake.clock import SystemClock
from turntake.rules.conversation import Answered
from turntake.rules.message import Message
from turntake.rules.records import Append, Claim
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, INTERRUPT, LEASE_MS, OFF, ids_of, open_ids, say, take


async def test_a_claim_reads_little_with_fifty_thousand_dead_rows_and_an_old_snapshot(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    """What one client's snapshot keeps from vacuum is read once a horizon, and not by every claim."""
    with psycopg.connect(server.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM turntake.conversations")
        await store.append([Append(key(number), Message("m1", "hi"), OFF) for number in range(1_000)])
        ask(server.url, CHURN)
        await clock.advance(60_000)
        await store.next_due()
        for _ in range(20):
            assert len(await store.claim(10, LEASE_MS)) == 10
        start = store.backend._index_start.for_claim(clock.now())
        assert pages_read(server, start, clock.now()) < 1_000
        assert pages_read(server, 0, clock.now()) > 10_000, "the dead rows are there"


def pages_read(server: Postgres, start: int, now: int) -> int:
    """By offering ten conversations that fell due from `start` on."""
    query = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM turntake.offer_2({start}, {now}, 10, 500, 1 << 20)"
    ((((plan,)),),) = ask(server.url, query)
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


async def test_what_is_overdue_when_written_is_found_below_the_floor(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    """A message that waited behind a long answer is due long ago: at once for us, within a horizon for others."""
    async with PostgresStore.open(server.url, clock) as other:
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        late = await say(store, "m2")
        await clock.advance(LEASE_MS - 1)
        for one in (store, other):
            assert await one.next_due() == clock.now() + 1
        assert await store.settle(claim, Answered())
        assert await store.next_due() == late.due_at
        await clock.advance(1_000)
        assert await other.next_due() == late.due_at
        assert ids_of(await take(other)) == ["m2"]


CHURN = """
DO $$ BEGIN
    FOR lap IN 1..50 LOOP
        UPDATE turntake.conversations SET due_at = due_at + 1;
    END LOOP;
END $$
"""


async def test_a_row_that_another_client_holds_delays_nobody_elses_claim(
    server: Postgres, store: PostgresStore
) -> None:
    """SKIP LOCKED: one conversation waits, all others are answered."""
    for name in (ANN, BOB):
        await say(store, "m1", key=name, rules=OFF)
    with psycopg.connect(server.url) as holder:
        holder.execute("SELECT FROM turntake.conversations WHERE key = %s FOR UPDATE", (str(ANN),))
        assert (await take(store, limit=5)).key == BOB
    assert (await take(store, limit=5)).key == ANN


async def test_no_transaction_is_open_while_a_handler_runs(server: Postgres, store: PostgresStore) -> None:
    """So a slow agent holds no lock, no snapshot and no connection."""
    open_transactions: list[Any] = []

    async def answer(turn: Turn) -> str:
        query = (
            "SELECT query FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
        open_transactions.extend(await asyncio.to_thread(ask, server.url, query))
        done.set()
        return "hello"

    done = asyncio.Event()
    async with (
        PostgresStore.open(server.url, SystemClock()) as live,
        TurnTake(live, rules=Rules(silence_ms=0, typing_inference_ms=0), agent=answer) as turns,
    ):
        await turns.receive("hi", conversation="ann", id="m1")
        await asyncio.wait_for(done.wait(), 10)
    assert open_transactions == []


def losing_the_first_claim(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Awaitable[object]], is_written: bool
) -> None:
    """Its connection breaks before or after it was written, and somebody else does something before it comes again."""
    write = PostgresOffer._write

    async def write_and_break(offer: PostgresOffer, call: Any) -> Any:
        monkeypatch.setattr(PostgresOffer, "_write", write)
        if is_written:
            await write(offer, call)
        else:
            await offer._transaction.stack.aclose()
        await meanwhile()
        raise psycopg.OperationalError("the reply was lost")

    monkeypatch.setattr(PostgresOffer, "_write", write_and_break)


async def test_a_claim_whose_reply_was_lost_is_ours_also_if_a_message_came_since(
    server: Postgres, store: PostgresStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the turn would wait for its lease to end."""
    await say(store, "m1", rules=OFF)
    async with PostgresStore.open(server.url, clock) as other:
        losing_the_first_claim(monkeypatch, lambda: say(other, "m2", rules=OFF), is_written=True)
        claim = await take(store)
    assert ids_of(claim) == ["m1"]
    assert await store.settle(claim, Answered())
    assert await open_ids(store) == ["m2"]


async def test_a_claim_that_was_never_written_is_not_ours_if_another_worker_claimed(
    server: Postgres, store: PostgresStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other's turn has the very same id and epoch as ours would have had."""
    await say(store, "m1", rules=OFF)
    others: list[Claim] = []

    async def claim_and_hear_more() -> None:
        others.append(await take(other))
        await say(other, "m2", rules=OFF)

    async with PostgresStore.open(server.url, clock) as other:
        losing_the_first_claim(monkeypatch, claim_and_hear_more, is_written=False)
        assert await store.claim(5, LEASE_MS) == []
    assert [claim.epoch for claim in others] == [clock.now()]


async def test_a_claim_that_was_interrupted_before_it_came_again_is_lost(
    server: Postgres, store: PostgresStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages wait again."""
    await say(store, "m1", rules=OFF)
    async with PostgresStore.open(server.url, clock) as other:
        losing_the_first_claim(monkeypatch, lambda: say(other, "m2", rules=INTERRUPT), is_written=True)
        assert await store.claim(5, LEASE_MS) == []
        assert await open_ids(other) == ["m1", "m2"]


async def test_a_deadline_that_only_the_index_has_is_mended_by_whoever_meets_it(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    """Or it would be the next one for ever, and every look would be followed by a claim of nothing."""
    later = await say(store, "m1")
    await say(store, "m1", key=BOB, rules=OFF)
    await store.settle(await take(store), Answered())
    await say(store, "m1", key=key(1), rules=OFF)
    ask(server.url, "UPDATE turntake.conversations SET due_at = 1, state = 'x' WHERE key <> %s", str(key(1)))
    assert await store.next_due() == 1
    assert (await take(store, limit=5)).key == key(1)
    copies = "SELECT state, due_at FROM turntake.conversations WHERE key = %s"
    assert ask(server.url, copies, str(ANN)) == [("collecting", later.due_at)]
    assert ask(server.url, copies, str(BOB)) == [("idle", None)]
    assert await store.next_due() == later.due_at


async def test_a_lost_offer_is_made_again(server: Postgres, clock: VirtualClock) -> None:
    """The rows it locked are free as soon as the server sees that the connection is gone."""
    await make(server)
    with proxying(server.port) as proxy:
        url = server.url.replace(str(server.port), str(proxy.port))
        async with PostgresStore.open(url, clock) as store:
            await say(store, "m1", rules=OFF)
            proxy.drop_next_reply()
            claims = await store.claim(1, LEASE_MS)
            while not claims:
                claims = await store.claim(1, LEASE_MS)
            assert claims[0].epoch == clock.now(), "nobody claimed it before"


async def test_a_row_stays_when_its_worker_dies_and_is_nobody_elses(store: PostgresStore, clock: VirtualClock) -> None:
    """Taking deletes nothing, and a message that comes meanwhile makes no second row to take."""
    await say(store, "m1", rules=OFF)
    await take(store)
    await say(store, "m2", rules=OFF)
    assert await store.claim(5, LEASE_MS) == []
    await clock.advance(LEASE_MS)
    assert ids_of(await take(store)) == ["m1"]


async def test_a_row_that_cannot_be_read_is_put_off_and_holds_up_nobody(
    server: Postgres, store: PostgresStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the earliest, and is looked at again a minute later."""
    await say(store, "m1", key=BOB, rules=OFF)
    await say(store, "m1", rules=OFF)
    ask(server.url, "UPDATE turntake.conversations SET body = 'x', due_at = 1 WHERE key = %s", str(BOB))
    assert (await take(store, limit=2)).key == ANN
    assert "A conversation cannot be read" in caplog.text
    assert await store.claim(5, LEASE_MS) == []
    due_at = ask(server.url, "SELECT due_at FROM turntake.conversations WHERE key = %s", str(BOB))
    assert due_at == [(clock.now() + 60_000,)]


async def test_a_claim_brings_no_more_than_a_megabyte_or_so(store: PostgresStore) -> None:
    """Over a slow link a larger one would never arrive in time. Those that are left out are due as before."""
    text = "x" * 60_000
    arrivals = [Append(key(n), Message(f"m{m}", text), OFF) for n in range(30) for m in range(2)]
    await store.append(arrivals)
    counts = []
    while claims := await store.claim(100, LEASE_MS):
        counts.append(len(claims))
        assert all([message.text for message in claim.messages] == [text] for claim in claims)
    assert counts[0] <= PART_BYTES // len(text) + 1
    assert sum(counts) == 30


async def test_a_long_turn_is_read_in_parts_none_of_which_is_larger(
    server: Postgres, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each travels in less time than we wait for an answer."""
    monkeypatch.setattr(backend, "PART_BYTES", 1_000)
    monkeypatch.setattr(claiming, "PART_BYTES", 1_000)
    rules = Rules(silence_ms=0, typing_inference_ms=0, capacity=100)
    await store.append([Append(ANN, Message(f"m{n}", "x" * 400), rules) for n in range(10)])
    claim = await take(store)
    assert ids_of(claim) == [f"m{n}" for n in range(10)]
    parts: list[int] = []
    fetch = store.backend._pool.fetch

    async def counted(query: bytes, parameters: Any = ()) -> list[Any]:
        rows = await fetch(query, parameters)
        parts.append(len(rows))
        return rows

    monkeypatch.setattr(store.backend._pool, "fetch", counted)
    assert list(await store.backend.messages(ANN, 1, 10)) == list(range(1, 11))
    assert parts == [3, 3, 3, 1]
