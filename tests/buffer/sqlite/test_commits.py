"""Operations that wait share a transaction, and each gets the answer that is its own."""

import asyncio
from pathlib import Path

import pytest

from turntake.buffer.sqlite import commit_thread, transaction_queue
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.buffer.store import Query
from turntake.clock import SystemClock
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Answered, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended
from turntake.rules.rules import Rules
from turntake.rules.transitions import turn_id
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import (
    ANN,
    BOB,
    LEASE_MS,
    OFF,
    PLAIN,
    ids_of,
    open_ids,
    say,
    take,
)


def count_commits(store: SqliteStore) -> list[int]:
    """One entry for each transaction from here on."""
    commits: list[int] = []

    def count() -> bool:
        commits.append(1)
        return False

    store.backend._writer.set_commit_hook(count)
    return commits


async def test_concurrent_appends_share_their_transactions(path: str, clock: VirtualClock) -> None:
    """Two hundred appends that wait together take a handful of commits."""
    async with SqliteStore(path, clock) as store:
        commits = count_commits(store)
        await asyncio.gather(*(say(store, "m1", key=ConversationKey.of(f"c{n}")) for n in range(200)))
        assert 1 <= len(commits) <= 5
        assert len((await store.history.conversations(Query(limit=300))).items) == 200


async def test_a_conversation_that_nobody_remembers_is_written_in_one_commit(path: str, clock: VirtualClock) -> None:
    """It is loaded first: a refusal would be a second transaction, and a second wait for the disk."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m1")
    async with SqliteStore(path, clock) as store:
        commits = count_commits(store)
        assert (await say(store, "m2")).seq == 2
        assert len(commits) == 1


async def test_a_call_about_several_conversations_takes_one_commit(path: str, clock: VirtualClock) -> None:
    """A webhook of a hundred people waits for the disk once."""
    async with SqliteStore(path, clock) as store:
        commits = count_commits(store)
        await store.append([Append(ConversationKey.of(f"c{n}"), Message("m1"), PLAIN) for n in range(100)])
        assert len(commits) == 1


async def test_a_batch_beside_an_operation_that_breaks_is_written_once(path: str, clock: VirtualClock) -> None:
    """The transaction begins again without the broken one, and the batch in it has the same items."""
    async with SqliteStore(path, clock) as store:
        commits = store.backend._commits
        busy = commits.run(lambda: None)
        adding = asyncio.ensure_future(say(store, "m1"))
        await asyncio.wait([adding], timeout=0)
        broken = commits.run(lambda: 1 // 0)
        late = asyncio.ensure_future(say(store, "m2"))
        with pytest.raises(ZeroDivisionError):
            await broken
        await busy
        assert [(await adding).seq, (await late).seq] == [1, 2]
        assert await open_ids(store) == ["m1", "m2"]


async def test_more_than_one_batch_of_operations_waits_its_turn(path: str, clock: VirtualClock) -> None:
    """A crowd beyond the largest batch is served in several transactions, none of them lost."""
    async with SqliteStore(path, clock) as store:
        count = commit_thread.LARGEST_TRANSACTION * 2 + 1
        answers = await asyncio.gather(*(say(store, f"m{n}", rules=Rules(capacity=9_999)) for n in range(count)))
        assert sorted(answer.waiting for answer in answers) == list(range(1, count + 1))


async def test_a_crowd_is_written_in_transactions_of_a_bounded_size(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many people write at once, none of them waits for all the others."""
    monkeypatch.setattr(transaction_queue, "LARGEST_TRANSACTION", 10)
    async with SqliteStore(path, clock) as store:
        commits = count_commits(store)
        await store.append([Append(ConversationKey.of(f"c{n}"), Message("m1"), PLAIN) for n in range(25)])
        assert len(commits) == 3


async def test_what_is_asked_at_once_acts_as_if_each_had_come_alone(path: str, clock: VirtualClock) -> None:
    """Messages, claims and a settlement share their commits: one of two claims wins, and one id is a duplicate."""
    async with SqliteStore(path, clock) as store:
        for name in (ANN, BOB):
            await say(store, "m0", key=name, rules=OFF)
        claim = await take(store)
        commits = count_commits(store)
        settled, first, again, claims, others = await asyncio.gather(
            store.settle(claim, Answered()),
            say(store, "m1", key=claim.key),
            say(store, "m1", key=claim.key),
            store.claim(5, LEASE_MS),
            store.claim(5, LEASE_MS),
        )
        assert settled
        assert [first.status, again.status] == ["buffered", "duplicate"]
        assert [ids_of(taken) for taken in (*claims, *others)] == [["m0"]]
        assert len(commits) <= 2


async def test_a_letter_is_retried_once_by_two_who_ask_at_the_same_time(path: str, clock: VirtualClock) -> None:
    """Both read the letter; the second one's write is refused, and finds it ended."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m1")
        await store.touch(ANN, Touch("clear"), PLAIN)
        letter_id = turn_id(ANN, 1, 1, clock.now())
        retried = await asyncio.gather(store.letters.retry(letter_id), store.letters.retry(letter_id))
        assert [conversation is None for conversation in retried] == [False, True]
        assert await open_ids(store) == ["m1"]


async def test_a_message_that_cannot_be_stored_does_not_fail_its_neighbours(path: str, clock: VirtualClock) -> None:
    """One caller's mistake in a shared transaction is that caller's alone."""
    async with SqliteStore(path, clock) as store:
        bad = Message("bad", metadata={"too big": 2**70})
        answers = await asyncio.gather(
            say(store, "m1"), store.append([Append(ANN, bad, PLAIN)]), say(store, "m2"), return_exceptions=True
        )
        assert isinstance(answers[1], OverflowError)
        assert not isinstance(answers[0], BaseException)
        assert not isinstance(answers[2], BaseException)
        assert await open_ids(store) == ["m1", "m2"]


async def test_a_write_that_cannot_be_made_does_not_fail_its_neighbours(path: str, clock: VirtualClock) -> None:
    """What the file cannot hold is found out inside the transaction that others share."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m1", key=BOB)
        too_long = Touch("hold", duration_ms=2**63)
        answers = await asyncio.gather(
            say(store, "m1"),
            store.touch(BOB, too_long, PLAIN),
            say(store, "m1", key=ConversationKey.of("eve")),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [Appended, OverflowError, Appended]
        assert (await say(store, "m2", key=BOB)).seq == 2


async def test_a_call_is_all_or_nothing(path: str, clock: VirtualClock) -> None:
    """A webhook of two messages, one of which cannot be stored, stores none."""
    async with SqliteStore(path, clock) as store:
        bad = Message("bad", metadata={"too big": 2**70})
        with pytest.raises(OverflowError):
            await store.append([Append(ANN, Message("m1"), PLAIN), Append(ANN, bad, PLAIN)])
        assert await store.find(ANN) is None


async def test_a_caller_who_gave_up_does_not_stop_the_others(path: str, clock: VirtualClock) -> None:
    """A cancelled request leaves the shared transaction alone."""
    async with SqliteStore(path, clock) as store:
        impatient = asyncio.ensure_future(say(store, "m1"))
        patient = asyncio.ensure_future(say(store, "m2"))
        await asyncio.wait([impatient], timeout=0)
        impatient.cancel()
        assert (await patient).status == "buffered"
        assert await open_ids(store) == ["m1", "m2"]


async def test_closing_waits_for_what_is_under_way(path: str, clock: VirtualClock) -> None:
    """An append that was asked for before the end is answered before the end."""
    async with SqliteStore(path, clock) as store:
        pending = asyncio.ensure_future(say(store, "m1"))
        await asyncio.wait([pending], timeout=0)
    assert (await pending).status == "buffered"


async def test_a_write_while_the_store_closes_is_refused(tmp_path: Path) -> None:
    """The thread that commits has ended: whoever comes now is told, and does not wait for ever."""
    async with SqliteStore(str(tmp_path / "t.db"), SystemClock()) as store:
        await store.backend._commits.close()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(say(store, "m1"), timeout=5)
