"""Many processes and batches that write to the same conversations, and replies that are lost after the commit."""

import asyncio
import threading
from collections.abc import Iterable, Sequence

import psycopg
import pytest

from harness.databases import Postgres, until
from harness.postgres_store import ask, make
from harness.proxy import proxying
from harness.writing import ROOMY, key
from turntake.buffer.engine.draft import NEW, RANDOM_BITS, Draft
from turntake.buffer.postgres import pool
from turntake.buffer.postgres.backend import PostgresStore
from turntake.buffer.postgres.claiming import PostgresOffer
from turntake.rules.conversation import Answered, Dead, Settlement
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended, Claim
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, LEASE_MS, OFF, ids_of, open_ids, say, take

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


async def test_order_is_commit_order_so_nothing_is_settled_unread(server: Postgres, store: PostgresStore) -> None:
    """A writer holds the conversation for long: no later message can be read, claimed or settled before its own."""
    await say(store, "m1", rules=OFF)
    with psycopg.connect(server.url) as slow:
        slow.execute("SELECT FROM turntake.conversations FOR UPDATE")
        late = asyncio.create_task(say(store, "m2", rules=OFF))
        await asyncio.to_thread(until, lambda: ask(server.url, WAITING) == [(1,)])
        assert not late.done()
        assert await open_ids(store) == ["m1"]
        assert await store.claim(5, LEASE_MS) == []
    assert (await late).seq == 2
    claim = await take(store)
    assert ids_of(claim) == ["m1"]
    assert await store.settle(claim, Answered())
    assert await open_ids(store) == ["m2"]


async def test_each_draft_of_a_batch_gets_its_own_answer(store: PostgresStore, clock: VirtualClock) -> None:
    """The call sorts them by their keys, and its answers come in that order."""
    await say(store, "m1", key=ANN)

    def draft(name: ConversationKey) -> Draft:
        draft = Draft(name, NEW, clock.now())
        draft.append(Append(name, Message("m2"), ROOMY), b"")
        draft.encode()
        return draft

    zoe = ConversationKey.of("zoe")
    refusals = await store.backend.swap(0, [draft(zoe), draft(BOB), draft(ANN)], None)
    assert [refusal is None for refusal in refusals] == [True, True, False]
    assert refusals[2] is not None
    assert refusals[2].row.conversation.next_seq == 2


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


async def test_two_batches_of_the_same_rows_never_wait_in_a_circle(
    server: Postgres, store: PostgresStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given in opposite orders while a third client holds the middle one: one batch is taken, the other refused."""
    monkeypatch.setattr(pool, "ATTEMPTS", 1)
    keys = [key(number) for number in range(3)]
    for one in keys:
        await say(store, "m0", key=one)
    rows = await store.backend.load(keys)

    def batch(message_id: str) -> list[Draft]:
        drafts = [Draft(one, row, clock.now()) for one, row in zip(keys, rows, strict=True)]
        for draft in drafts:
            draft.append(Append(draft.key, Message(message_id), ROOMY), b"")
            draft.encode()
        return drafts

    with psycopg.connect(server.url) as holder:
        holder.execute("SELECT FROM turntake.conversations WHERE key = %s FOR UPDATE", (str(keys[1]),))
        ahead = asyncio.create_task(store.backend.swap(0, batch("m1"), None))
        back = asyncio.create_task(store.backend.swap(1, batch("m2")[::-1], None))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await asyncio.to_thread(until, lambda: ask(server.url, waiting) == [(2,)])
    taken, refused = sorted([await ahead, await back], key=lambda answer: answer[0] is not None)
    assert taken == [None] * 3
    assert [refusal.row.version >> RANDOM_BITS for refusal in refused if refusal] == [clock.now() // 1000 + 2] * 3


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
    assert ask(server.url, "SELECT count(*), min(seq), max(seq) FROM turntake.messages") == [(500, 1, 5)]


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
            take_offer = PostgresOffer.take

            async def take_and_lose_the_reply(offer: PostgresOffer, drafts: Sequence[Draft]) -> list[bool]:
                proxy.drop_next_reply()
                return await take_offer(offer, drafts)

            # The offer's reply came; the next one is the commit's.
            monkeypatch.setattr(PostgresOffer, "take", take_and_lose_the_reply)
            settlements: list[Settlement] = [Dead("no"), Answered()]
            for before, settlement in enumerate(settlements):
                claim = await take(store)
                assert claim.epoch == clock.now() + before, "each claim is one"
                proxy.drop_next_reply()
                assert await store.extend([claim], LEASE_MS) == [True]
                proxy.drop_next_reply()
                assert await store.settle(claim, settlement)
            assert proxy.dropped_replies == 8
    ((version,),) = ask(server.url, "SELECT version FROM turntake.conversations WHERE key = %s", str(ANN))
    assert version >> RANDOM_BITS == clock.now() // 1000 + 8, "each write is counted once"


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
    fetch = store.backend._pool.fetch
    assert await fetch(b"SELECT name FROM pg_prepared_statements") == []
    assert await fetch(b"SELECT name FROM pg_settings WHERE source = 'session' AND name <> 'client_encoding'") == []
    assert await fetch(b"SELECT pid FROM pg_locks WHERE locktype = 'advisory'") == []
