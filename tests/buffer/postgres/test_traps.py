"""What PostgreSQL, its networks and its other clients do to a store."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from harness.databases import Postgres, until
from harness.proxy import proxying
from turntake import Rules, Turn, TurnTake
from turntake.buffer.engine.backend import Due
from turntake.buffer.engine.draft import LOT_BITS, Draft, Row
from turntake.buffer.postgres import pool as connections
from turntake.buffer.postgres.store import PostgresStore
from turntake.buffer.store import Hint
from turntake.clock import SystemClock
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Answered, Dead
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended, Claim
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, INTERRUPT, LEASE_MS, OFF, ids_of, open_ids, say, take

EMPTIED = "TRUNCATE turntake.conversations, turntake.messages, turntake.turns; UPDATE turntake.clock SET seen_at = 0"
ROOMY = Rules(capacity=9_999)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("postgres"), is_safe=False) as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(server: Postgres, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    async with PostgresStore.open(server.url, clock) as store:
        ask(server, EMPTIED)
        yield store


def ask(server: Postgres, query: str, *parameters: object) -> list[Any]:
    """Asked beside the store, by another client."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        cursor = connection.execute(query.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []


def key(number: int) -> ConversationKey:
    return ConversationKey.of(f"c{number}")


async def test_order_is_commit_order_so_nothing_is_settled_unread(server: Postgres, store: PostgresStore) -> None:
    """A writer holds the conversation for long: no later message can be read, claimed or settled before its own."""
    await say(store, "m1", rules=OFF)
    with psycopg.connect(server.url) as slow:
        slow.execute("SELECT FROM turntake.conversations FOR UPDATE")
        late = asyncio.create_task(say(store, "m2", rules=OFF))
        await asyncio.wait([late], timeout=0.2)
        assert not late.done()
        assert await open_ids(store) == ["m1"]
        assert await store.claim(5, LEASE_MS) == []
    assert (await late).seq == 2
    claim = await take(store)
    assert ids_of(claim) == ["m1"]
    assert await store.settle(claim, Answered())
    assert await open_ids(store) == ["m2"]


@pytest.mark.timeout(120)
def test_sixteen_processes_of_one_conversation_keep_every_message(server: Postgres) -> None:
    """Each has its own store and knows nothing of the others; numbers have no holes, and a claim has one winner."""
    writers, each = 16, 20
    winners: list[Claim] = []

    async def write(writer: int) -> None:
        async with PostgresStore.open(server.url, VirtualClock()) as store:
            together.wait()
            answers = [await say(store, f"{writer}-{number}", rules=ROOMY) for number in range(each)]
            assert {answer.status for answer in answers} == {"buffered"}
            store.clock.not_before(store.clock.now() + 60_000)
            together.wait()
            winners.extend(await store.claim(5, LEASE_MS))

    async def look() -> tuple[list[str], list[int]]:
        async with PostgresStore.open(server.url, VirtualClock()) as store:
            found = await store.find(ANN)
            assert found is not None
            return ids_of(found), [message.seq for message in found.messages]

    asyncio.run(make(server))
    together = threading.Barrier(writers, timeout=60)
    threads = [threading.Thread(target=lambda n=n: asyncio.run(write(n))) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids, seqs = asyncio.run(look())
    assert sorted(ids) == sorted(f"{writer}-{number}" for writer in range(writers) for number in range(each))
    assert seqs == list(range(1, writers * each + 1))
    assert len(winners) == 1
    assert len(winners[0].messages) == writers * each


async def make(server: Postgres) -> None:
    async with PostgresStore.open(server.url, VirtualClock()):
        ask(server, EMPTIED)


async def test_two_batches_of_the_same_rows_never_wait_in_a_circle(
    server: Postgres, store: PostgresStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given in opposite orders while a third client holds the middle one: one batch is taken, the other refused."""
    monkeypatch.setattr(connections, "ATTEMPTS", 1)
    keys = [key(number) for number in range(3)]
    for one in keys:
        await say(store, "m0", key=one)
    rows = await store.shelf.load(keys)

    def batch(message_id: str) -> list[Draft]:
        drafts = [Draft(one, row, clock.now()) for one, row in zip(keys, rows, strict=True)]
        for draft in drafts:
            draft.append(Append(draft.key, Message(message_id), ROOMY), b"")
            draft.encode()
        return drafts

    with psycopg.connect(server.url) as holder:
        holder.execute("SELECT FROM turntake.conversations WHERE key = %s FOR UPDATE", (str(keys[1]),))
        ahead = asyncio.create_task(store.shelf.swap(0, batch("m1"), None))
        back = asyncio.create_task(store.shelf.swap(1, batch("m2")[::-1], None))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await asyncio.to_thread(until, lambda: ask(server, waiting) == [(2,)])
    taken, refused = sorted([await ahead, await back], key=lambda answer: answer[0] is not None)
    assert taken == [None] * 3
    assert [refusal.row.version >> LOT_BITS for refusal in refused if refusal] == [2] * 3


async def test_two_stores_that_write_to_the_same_conversations_store_each_message_once(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    """Both send everything, in opposite orders, to conversations that are new to both."""
    async with PostgresStore.open(server.url, clock) as other:

        async def write(one: PostgresStore, numbers: Iterable[int]) -> list[Appended]:
            return [
                answer
                for lap in range(5)
                for answer in await one.append([Append(key(n), Message(f"m{lap}", "hi"), ROOMY) for n in numbers])
            ]

        both = await asyncio.gather(write(store, range(100)), write(other, range(99, -1, -1)))
    assert sorted(answer.status for answers in both for answer in answers) == ["buffered"] * 500 + ["duplicate"] * 500
    assert ask(server, "SELECT count(*), min(seq), max(seq) FROM turntake.messages") == [(500, 1, 5)]


async def test_a_notify_is_sent_only_for_what_is_due_before_the_horizon(server: Postgres, store: PostgresStore) -> None:
    """Not for each message: a hundred that wait for long are silent, and those due soon share a word."""
    heard: list[str] = []
    with psycopg.connect(server.url, autocommit=True) as listener:
        listener.execute("LISTEN turntake")
        for number in range(100):
            await say(store, "m1", key=key(number), rules=Rules(silence_ms=5_000, typing_inference_ms=0))
        for number in range(100):
            await say(store, "m2", key=key(number), rules=Rules(silence_ms=500, typing_inference_ms=0))
        heard += [notice.payload for notice in listener.notifies(timeout=0.2)]
    assert 1 <= len(heard) <= store.shelf.lanes


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
        assert None not in await store.shelf.swap(0, [draft(ANN)], Hint(7))
        assert None in await store.shelf.swap(0, [draft(ANN), draft(BOB)], Hint(8))
        heard = [notice.payload for notice in listener.notifies(timeout=0.2)]
    assert heard == ["[8,[]]"]


async def test_another_process_hears_a_hint_and_one_that_is_too_long_is_cut(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    """8,000 bytes are refused by the server; the deadline alone always fits."""
    async with PostgresStore.open(server.url, clock) as other:
        hints = other.hints()
        first = asyncio.ensure_future(anext(hints))
        await asyncio.to_thread(until, lambda: ask(server, LISTENERS) == [(1,)])
        stopped = tuple((f"key{number}", "t" * 40, 1) for number in range(500))
        await store.shelf.announce(Hint(7, stopped))
        assert await asyncio.wait_for(first, 5) == Hint(7)
        await store.shelf.announce(Hint(8, stopped[:2]))
        assert await asyncio.wait_for(anext(hints), 5) == Hint(8, stopped[:2])
        ask(server, "SELECT pg_notify('turntake', 'what is this')")
        await store.shelf.announce(Hint(9))
        assert await asyncio.wait_for(anext(hints), 5) == Hint(9)
        await hints.aclose()  # type: ignore[attr-defined]


LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"


async def test_a_listener_that_lost_its_connection_listens_again(server: Postgres, store: PostgresStore) -> None:
    """Meanwhile nothing fails; the horizon finds what no word was heard of."""
    async with PostgresStore.open(server.url, SystemClock()) as other:
        hints = other.hints()
        first = asyncio.ensure_future(anext(hints))
        await asyncio.to_thread(until, lambda: ask(server, LISTENERS) == [(1,)])
        ask(server, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        await asyncio.to_thread(until, lambda: ask(server, LISTENERS) == [(1,)])
        await store.shelf.announce(Hint(7))
        assert await asyncio.wait_for(first, 5) == Hint(7)
        await hints.aclose()  # type: ignore[attr-defined]


async def test_a_claim_reads_little_with_fifty_thousand_dead_rows_and_an_old_snapshot(
    server: Postgres, store: PostgresStore, clock: VirtualClock
) -> None:
    """What one client's snapshot keeps from vacuum is read once a horizon, and not by every claim."""
    with psycopg.connect(server.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM turntake.conversations")
        await store.append([Append(key(number), Message("m1", "hi"), OFF) for number in range(1_000)])
        ask(server, CHURN)
        await clock.advance(60_000)
        await store.next_due()
        for _ in range(20):
            assert len(await store.claim(10, LEASE_MS)) == 10
        start = store.shelf._floor.start(clock.now())  # type: ignore[attr-defined]
        assert pages_read(server, start, clock.now()) < 1_000
        assert pages_read(server, 0, clock.now()) > 10_000, "the dead rows are there"


def pages_read(server: Postgres, start: int, now: int) -> int:
    """By offering ten conversations that fell due from `start` on."""
    query = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM turntake.offer_1({start}, {now}, 10, 500)"
    ((((plan,)),),) = ask(server, query)
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
        open_transactions.extend(await asyncio.to_thread(ask, server, query))
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


async def test_a_terminate_storm_loses_nothing_and_repeats_nothing(server: Postgres, store: PostgresStore) -> None:
    """Every backend is ended again and again under load; what was acknowledged is there once."""
    acknowledged: list[str] = []
    refused = 0

    async def write(writer: int) -> None:
        nonlocal refused
        for number in range(60):
            message_id = f"{writer}-{number}"
            while True:
                try:
                    await say(store, message_id, key=key(writer % 5), rules=ROOMY)
                    break
                except StoreUnavailable:
                    refused += 1
            acknowledged.append(message_id)

    writing = asyncio.gather(*(write(writer) for writer in range(20)))
    storms = 0
    while not writing.done():
        await asyncio.to_thread(ask, server, TERMINATE)
        storms += 1
        await asyncio.wait([writing], timeout=0.03)
    await writing
    assert storms > 3
    stored = [bytes(row[0]).decode() for row in ask(server, "SELECT id FROM turntake.messages")]
    assert sorted(stored) == sorted(acknowledged)
    numbers = ask(server, "SELECT count(*) = max(seq) AND min(seq) = 1 FROM turntake.messages GROUP BY conversation")
    assert numbers == [(True,)] * 5


async def test_a_reply_lost_after_the_commit_is_no_refusal(
    server: Postgres, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each verb is carried out once and answered as if nothing had happened, also when its reply never came."""
    await make(server)
    with proxying(server.port) as proxy:
        url = server.url.replace(str(server.port), str(proxy.port))
        async with PostgresStore.open(url, clock) as store:
            await say(store, "m0", key=BOB)
            for number in (1, 2):
                proxy.drop_next_reply()
                answer = await say(store, f"m{number}", rules=OFF)
                assert (answer.status, answer.seq) == ("buffered", number)
            decide = store._claimed

            def decide_and_lose_the_next_reply(due: Due, lease_ms: int) -> Draft | None:
                proxy.drop_next_reply()
                return decide(due, lease_ms)

            # The offer's reply came; the next one is the commit's.
            monkeypatch.setattr(store, "_claimed", decide_and_lose_the_next_reply)
            for epoch, settlement in ((1, Dead("no")), (2, Answered())):
                claim = await take(store)
                assert claim.epoch == epoch
                proxy.drop_next_reply()
                assert await store.extend([claim], LEASE_MS) == [True]
                proxy.drop_next_reply()
                assert await store.settle(claim, settlement)
            assert proxy.dropped_replies == 8
    ((version,),) = ask(server, "SELECT version FROM turntake.conversations WHERE key = %s", str(ANN))
    assert version >> LOT_BITS == 8, "each write is counted once"


def losing_the_first_claim(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Awaitable[object]], is_written: bool
) -> None:
    """Its connection breaks before or after it was written, and somebody else does something before it comes again."""
    pool = store.shelf._connections  # type: ignore[attr-defined]
    steadily = pool.steadily

    async def break_first(action: Callable[[Any], Awaitable[Any]]) -> Any:
        attempts = itertools.count()

        async def attempt(connection: Any) -> Any:
            if next(attempts):
                return await action(connection)
            async with connection.transaction(force_rollback=not is_written):
                await action(connection)
            await meanwhile()
            raise psycopg.OperationalError("the reply was lost")

        monkeypatch.setattr(pool, "steadily", steadily)
        return await steadily(attempt)

    monkeypatch.setattr(pool, "steadily", break_first)


async def test_a_claim_whose_reply_was_lost_is_ours_also_if_a_message_came_since(
    server: Postgres, store: PostgresStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the turn would wait for its lease to end."""
    await say(store, "m1", rules=OFF)
    async with PostgresStore.open(server.url, clock) as other:
        losing_the_first_claim(store, monkeypatch, lambda: say(other, "m2", rules=OFF), is_written=True)
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
        losing_the_first_claim(store, monkeypatch, claim_and_hear_more, is_written=False)
        assert await store.claim(5, LEASE_MS) == []
    assert [claim.epoch for claim in others] == [1]


async def test_a_claim_that_was_interrupted_before_it_came_again_is_lost(
    server: Postgres, store: PostgresStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages wait again."""
    await say(store, "m1", rules=OFF)
    async with PostgresStore.open(server.url, clock) as other:
        losing_the_first_claim(store, monkeypatch, lambda: say(other, "m2", rules=INTERRUPT), is_written=True)
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
    ask(server, "UPDATE turntake.conversations SET due_at = 1, state = 'x' WHERE key <> %s", str(key(1)))
    assert await store.next_due() == 1
    assert (await take(store, limit=5)).key == key(1)
    copies = "SELECT state, due_at FROM turntake.conversations WHERE key = %s"
    assert ask(server, copies, str(ANN)) == [("collecting", later.due_at)]
    assert ask(server, copies, str(BOB)) == [("idle", None)]
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
            assert claims[0].epoch == 1


async def test_a_server_that_falls_silent_is_given_up_and_found_again(
    server: Postgres, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No caller waits for ever, and nothing was accepted."""
    await make(server)
    monkeypatch.setattr(connections, "PATIENCE_S", 0.3)
    monkeypatch.setattr(connections, "WAIT_S", 0.3)
    with proxying(server.port) as proxy:
        url = server.url.replace(str(server.port), str(proxy.port))
        async with PostgresStore.open(url, clock) as store:
            await say(store, "m1")
            proxy.blackhole()
            with pytest.raises(StoreUnavailable, match="send it again"):
                await say(store, "m2")
            proxy.heal()
            assert (await again(store, "m2")).waiting == 2


async def again(store: PostgresStore, message_id: str) -> Appended:
    """Sent until it is taken."""
    while True:
        try:
            return await say(store, message_id)
        except StoreUnavailable:
            continue


async def test_a_read_only_server_takes_nothing_and_says_so(server: Postgres, clock: VirtualClock) -> None:
    """As after a failover, when connections still lead to the old primary; reads go on."""
    async with PostgresStore.open(server.database("protected"), clock) as store:
        await say(store, "m1")
        ask(server, "ALTER DATABASE protected SET default_transaction_read_only = on")
        ask(server, TERMINATE)
        with pytest.raises(StoreUnavailable, match="read-only"):
            await say(store, "m2")
        assert await store.next_due() is not None
        ask(server, "ALTER DATABASE protected RESET ALL")
        assert (await again(store, "m2")).waiting == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [("53100", StoreUnavailable), ("53300", StoreUnavailable), ("40P01", StoreUnavailable), ("P0001", psycopg.Error)],
)
async def test_what_will_pass_is_told_from_what_is_wrong(
    server: Postgres, store: PostgresStore, code: str, kind: type[Exception]
) -> None:
    """A full disk is no fault of ours; an error in a statement is, and hiding it would help nobody."""
    ask(server, FAILING.format(code=code))
    try:
        with pytest.raises(kind) as caught:
            await say(store, "m1")
        assert isinstance(caught.value, StoreUnavailable) == (kind is StoreUnavailable)
    finally:
        ask(server, "DROP TRIGGER failing ON turntake.messages")
    assert (await say(store, "m1")).status == "buffered"


FAILING = """
CREATE OR REPLACE FUNCTION turntake.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no' USING ERRCODE = '{code}';
END $$;
CREATE TRIGGER failing BEFORE INSERT ON turntake.messages FOR EACH STATEMENT EXECUTE FUNCTION turntake.fail()
"""


async def test_a_killed_server_comes_back_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    """kill -9 in the middle of writes, children too; no message is lost or doubled, and the store goes on by itself."""
    acknowledged: list[str] = []
    with Postgres(tmp_path) as server:
        async with PostgresStore.open(server.url, VirtualClock()) as store:

            async def write(writer: int) -> None:
                number = 0
                while not is_over:
                    number += 1
                    try:
                        await say(store, f"{writer}-{number}", key=key(writer % 4), rules=ROOMY)
                        acknowledged.append(f"{writer}-{number}")
                    except StoreUnavailable:
                        continue

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
        stored = [bytes(row[0]).decode() for row in ask(server, "SELECT id FROM turntake.messages")]
    assert len(set(stored)) == len(stored)
    assert set(acknowledged) <= set(stored)


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
    ask(server, "UPDATE turntake.conversations SET body = 'x', due_at = 1 WHERE key = %s", str(BOB))
    assert (await take(store, limit=2)).key == ANN
    assert "A conversation cannot be read" in caplog.text
    assert await store.claim(5, LEASE_MS) == []
    due_at = ask(server, "SELECT due_at FROM turntake.conversations WHERE key = %s", str(BOB))
    assert due_at == [(clock.now() + 60_000,)]


async def test_ids_may_hold_anything_and_unknown_ones_are_only_unknown(store: PostgresStore) -> None:
    """Text in PostgreSQL holds no NUL; one strange id must not fail the batch that it shares with others."""
    strange = "m\x00\U0001f600'"
    answers = await asyncio.gather(say(store, strange), say(store, "m1", key=BOB), say(store, strange))
    assert sorted(answer.status for answer in answers) == ["buffered", "buffered", "duplicate"]
    assert (await say(store, strange)).status == "duplicate"
    assert await open_ids(store) == [strange]
    assert await store.history.turn("\x00") is None
    with pytest.raises(ValueError, match="no listing"):
        await store.letters.list(1, "1-\x00")


async def test_nothing_is_left_in_a_session(server: Postgres, store: PostgresStore) -> None:
    """Behind PgBouncer in transaction mode the next statement may meet another session."""
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    await store.settle(claim, Answered())
    fetch = store.shelf._connections.fetch  # type: ignore[attr-defined]
    assert await fetch(b"SELECT name FROM pg_prepared_statements") == []
    assert await fetch(b"SELECT name FROM pg_settings WHERE source = 'session' AND name <> 'client_encoding'") == []
    assert await fetch(b"SELECT pid FROM pg_locks WHERE locktype = 'advisory'") == []


TERMINATE = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
