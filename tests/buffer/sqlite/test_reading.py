"""Lists, forgetting and the index of deadlines, in steps and while others write."""

import asyncio
import threading

import msgspec
import pytest

from turntake.buffer.cursor import Cursor
from turntake.buffer.engine import history
from turntake.buffer.engine.draft import NEW
from turntake.buffer.sqlite.archive import SqliteArchive
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.buffer.sqlite.commit_thread import CommitThread
from turntake.buffer.sqlite.queries import SQL
from turntake.buffer.store import Query
from turntake.rules.conversation import Answered
from turntake.rules.key import ConversationKey
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import (
    ANN,
    BOB,
    LEASE_MS,
    OFF,
    say,
    take,
)
from turntake.testing.store_machine import conversations_by_pages


async def test_long_lists_are_read_in_several_steps(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that matches little still finds everything, however the table is cut."""
    monkeypatch.setattr(history, "PAGE", 2)
    async with SqliteStore(path, clock) as store:
        for number in range(7):
            tenant = "rare" if number in (3, 6) else "common"
            await say(store, "m1", key=ConversationKey.of(f"c{number}", tenant=tenant), rules=OFF)
        for claim in await store.claim(6, LEASE_MS):
            await store.settle(claim, Answered())
        rare = await conversations_by_pages(store, Query(tenant="rare", limit=1))
        assert [key.conversation for key, _ in rare] == ["c6", "c3"]
        assert len(await conversations_by_pages(store, Query(limit=3))) == 7
        assert len(await conversations_by_pages(store, Query(limit=1, state="collecting"))) == 1


async def test_one_that_is_answered_while_it_is_listed_is_listed_once(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was seen among those that are due, and then among the idle ones."""
    look = SqliteArchive.conversations
    async with SqliteStore(path, clock) as store:
        await say(store, "m1", rules=OFF)
        claim = await take(store)

        async def answered_meanwhile(self: SqliteArchive, after: Cursor | None, limit: int) -> object:
            page = await look(self, after, limit)
            if after is None:
                await store.settle(claim, Answered())
            return page

        monkeypatch.setattr(history, "PAGE", 1)
        monkeypatch.setattr(SqliteArchive, "conversations", answered_meanwhile)
        ((_, conversation),) = (await store.history.conversations(Query())).items
        assert conversation.state == "idle"


async def test_what_is_not_committed_yet_is_not_read(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a commit is on its way to the disk, readers see the database as it was before."""
    is_begun, may_end = asyncio.Event(), threading.Event()
    loop, commit = asyncio.get_running_loop(), CommitThread._commit

    def held(self: CommitThread) -> None:
        loop.call_soon_threadsafe(is_begun.set)
        assert may_end.wait(20)
        commit(self)

    async with SqliteStore(path, clock) as store:
        await say(store, "m1", rules=OFF)
        monkeypatch.setattr(CommitThread, "_commit", held)
        saying = asyncio.create_task(say(store, "m2", key=BOB, rules=OFF))
        try:
            await is_begun.wait()
            assert await store.find(BOB) is None
            assert await store.backend.load([BOB]) == [NEW]
            assert await store.find(ANN) is not None
        finally:
            may_end.set()
        assert (await saying).seq == 1
        assert await store.find(BOB) is not None


async def test_forgetting_a_lot_takes_several_calls(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call does a bounded part and says how much."""
    monkeypatch.setattr(history, "FORGOTTEN_AT_ONCE", 2)
    async with SqliteStore(path, clock) as store:
        for number in range(3):
            await say(store, f"m{number}", rules=OFF)
            await store.settle(await take(store), Answered())
        await clock.advance(1)
        assert [await store.history.forget(clock.now()) for _ in range(3)] == [2, 1, 0]


async def test_deadlines_are_found_by_the_index(path: str, clock: VirtualClock) -> None:
    """Claiming and looking for the next deadline never scan the conversations."""
    async with SqliteStore(path, clock) as store:
        for name, bindings in (("due", (0, 1)), ("next_due", ())):
            plan = store.backend._reader.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", bindings).fetchall()
            steps = [str(row[3]) for row in plan if "TEMP B-TREE FOR LAST TERM" not in str(row[3])]
            assert all("conversations_due" in step for step in steps), plan


async def test_one_row_that_cannot_be_read_delays_nobody_else(
    path: str, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is put off for a minute; whoever writes to it is told, and others in the same batch are not."""
    async with SqliteStore(path, clock) as store:
        for name in (ANN, BOB):
            await say(store, "m1", key=name, rules=OFF)
        store.backend._writer.execute("UPDATE conversations SET body = x'c1' WHERE key = ?", (str(ANN),))
    async with SqliteStore(path, clock) as store:
        assert (await take(store, limit=5)).key == BOB
        assert "A conversation cannot be read" in caplog.text
        assert await store.claim(5, LEASE_MS) == []
        due = store.backend._reader.execute("SELECT due_at FROM conversations WHERE key = ?", (str(ANN),)).fetchall()
        assert due == [(clock.now() + 60_000,)]
        answers = await asyncio.gather(say(store, "m2"), say(store, "m2", key=BOB), return_exceptions=True)
        assert isinstance(answers[0], msgspec.MsgspecError)
        assert not isinstance(answers[1], BaseException)


async def test_a_deadline_that_only_the_copy_has_is_repaired_by_whoever_meets_it(
    path: str, clock: VirtualClock
) -> None:
    """Or it would be the next one for ever, and every look would be followed by a claim of nothing."""
    async with SqliteStore(path, clock) as store:
        later = await say(store, "m1")
        await say(store, "m1", key=BOB, rules=OFF)
        store.backend._writer.execute("UPDATE conversations SET due_at = 1 WHERE key = ?", (str(ANN),))
        assert (await take(store, limit=5)).key == BOB
        assert await store.next_due() == later.due_at


async def test_a_page_passes_over_no_more_rows_than_it_may_have(path: str, clock: VirtualClock) -> None:
    """Where everybody waits, nobody is idle: to know that must not take a look at everybody at once."""
    async with SqliteStore(path, clock) as store:
        for number in range(7):
            await say(store, "m1", key=ConversationKey.of(f"c{number}"))
        passed_over = await store.backend.archive.conversations(Cursor(None, ""), 5)
        assert [row for _, row in passed_over] == [NEW] * 5
        rest = await store.backend.archive.conversations(passed_over[-1][0], 5)
        assert [row for _, row in rest] == [NEW] * 2
        assert await conversations_by_pages(store, Query(state="idle")) == []
        assert len(await conversations_by_pages(store, Query(limit=2))) == 7
