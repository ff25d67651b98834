"""Operations that wait share a transaction, and each gets the answer that is its own."""

import asyncio
from pathlib import Path

import pytest

from turntake.buffer.sqlite import writer
from turntake.buffer.sqlite.store import SqliteStore
from turntake.buffer.store import Query
from turntake.clock import SystemClock
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Answered, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
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

    store._connection.set_commit_hook(count)
    return commits


async def test_concurrent_appends_share_their_transactions(path: str, clock: VirtualClock) -> None:
    """Two hundred appends that wait together take a handful of commits."""
    async with SqliteStore(path, clock) as store:
        commits = count_commits(store)
        await asyncio.gather(*(say(store, "m1", key=ConversationKey.of(f"c{n}")) for n in range(200)))
        assert 1 <= len(commits) <= 5
        assert len((await store.history.conversations(Query(limit=300))).items) == 200


async def test_more_than_one_batch_of_operations_waits_its_turn(path: str, clock: VirtualClock) -> None:
    """A crowd beyond the largest batch is served in several transactions, none of them lost."""
    async with SqliteStore(path, clock) as store:
        count = writer.LARGEST_BATCH * 2 + 1
        answers = await asyncio.gather(*(say(store, f"m{n}", rules=Rules(capacity=9_999)) for n in range(count)))
        assert sorted(answer.waiting for answer in answers) == list(range(1, count + 1))


async def test_operations_of_one_transaction_see_each_other(path: str, clock: VirtualClock) -> None:
    """A message, a claim and a settlement that share a commit act as if each had come alone."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m0", key=BOB, rules=OFF)
        bob = await take(store)
        _, claims, settled, again, none = await asyncio.gather(
            say(store, "m1", rules=OFF),
            store.claim(5, LEASE_MS),
            store.settle(bob, Answered()),
            say(store, "m1"),
            store.claim(5, LEASE_MS),
        )
        assert [ids_of(claim) for claim in claims] == [["m1"]]
        assert settled
        assert again.status == "duplicate"
        assert none == []


async def test_a_letter_made_and_retried_in_one_transaction_is_found(path: str, clock: VirtualClock) -> None:
    """The conversation need not have been written before."""
    async with SqliteStore(path, clock) as store:
        commits = count_commits(store)
        _, _, conversation = await asyncio.gather(
            say(store, "m1"), store.touch(ANN, Touch("clear"), PLAIN), store.letters.retry(turn_id(ANN, 1, 1))
        )
        assert conversation is not None
        assert await open_ids(store) == ["m1"]
        assert len(commits) == 1


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
        await store._writer.close()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(store.append([]), timeout=5)
