"""The write queue: operations of one conversation are decided on the newest row, written once, answered one by one."""

import asyncio

import pytest

from harness.fake_backend import FakeBackend, at_once, queue_on, saying, submitted
from harness.writing import everything_ran
from turntake.buffer.engine import jobs, row_cache, write_queue
from turntake.buffer.engine.jobs import Backlog
from turntake.buffer.engine.write_queue import WriteQueue
from turntake.errors import StoreUnavailable
from turntake.rules.key import ConversationKey
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, PLAIN


async def test_a_refused_operation_is_decided_again_on_the_newer_row(backend: FakeBackend, clock: VirtualClock) -> None:
    """Two processes that know nothing of each other write in turn; each number is given once."""
    one, other = queue_on(backend, clock), queue_on(backend, clock)
    assert (await submitted(one, ANN, saying("m1"))).seq == 1
    assert (await submitted(other, ANN, saying("m2"))).seq == 2
    assert backend.refusals == 1, "it knew no row"
    assert (await submitted(one, ANN, saying("m3"))).seq == 3
    assert backend.refusals == 2, "its row was old"
    assert (await submitted(one, ANN, saying("m4"))).seq == 4
    assert backend.refusals == 2, "it wrote last, so it knows"


async def test_an_id_that_the_store_holds_is_a_duplicate_though_the_row_was_known(
    backend: FakeBackend, queue: WriteQueue
) -> None:
    """A queue remembers rows and no ids: the store says so, and the rest of the batch is kept."""
    await submitted(queue, ANN, saying("m1"))
    answers = await asyncio.gather(
        *(submitted(queue, ANN, saying(message_id)) for message_id in ("m1", "m2", "m1", "m2"))
    )
    assert [answer.status for answer in answers] == ["duplicate", "buffered", "duplicate", "duplicate"]
    assert backend.ids[ANN] == {"m1", "m2"}
    assert backend.rows[ANN].conversation.next_seq == 3


async def test_a_draft_that_came_too_late_is_decided_again_by_a_later_time(
    backend: FakeBackend, queue: WriteQueue, clock: VirtualClock
) -> None:
    """It was refused unread, so its row may still be right; the time of arrival is not."""
    backend.is_deaf = True
    backend.gate.clear()
    answer = submitted(queue, ANN, saying("m1"))
    await everything_ran()
    clock.stall(5_000)
    backend.gate.set()
    assert (await answer).due_at == clock.now() + PLAIN.silence_ms
    assert len(backend.batches) == 2


async def test_a_late_draft_that_changes_nothing_is_still_compared(backend: FakeBackend, clock: VirtualClock) -> None:
    """Refused unread, it knows no more than before: a claim that somebody else took over must not look held."""
    one, other = queue_on(backend, clock), queue_on(backend, clock)
    await submitted(one, ANN, at_once("m1"))
    turn = await submitted(one, ANN, lambda draft: draft.claim(100))
    assert turn is not None
    claim = Claim(ANN, backend.rows[ANN].conversation.epoch, turn, ())
    backend.is_deaf = True
    assert await submitted(other, ANN, lambda draft: draft.extend(claim, 200)), "the store's row says that it holds"


async def test_two_conversations_are_written_in_parallel_and_one_never_twice(
    backend: FakeBackend, queue: WriteQueue
) -> None:
    """The backend itself refuses two writes to one conversation at a time."""
    backend.gate.clear()
    answers = [submitted(queue, ANN, saying("m1"))]
    await everything_ran()
    answers += [
        submitted(queue, BOB, saying("m1", BOB)),
        submitted(queue, ANN, saying("m2")),
        submitted(queue, ANN, saying("m3")),
    ]
    await everything_ran()
    assert backend.under_way == [ANN, BOB]
    backend.gate.set()
    assert [(await answer).seq for answer in answers] == [1, 1, 2, 3]
    assert backend.batches == [[ANN], [BOB], [ANN]], "what waited was written together"
    assert backend.most_calls == 2


async def test_no_more_writers_than_allowed_and_no_batch_larger(backend: FakeBackend, queue: WriteQueue) -> None:
    """A crowd is written in few large batches, those who waited longest first."""
    backend.batch = 10
    keys = [ConversationKey.of(f"c{number}") for number in range(95)]
    answers = await asyncio.gather(*(submitted(queue, key, saying("m1", key)) for key in keys))
    assert {answer.status for answer in answers} == {"buffered"}
    assert [key for batch in backend.batches for key in batch] == keys
    assert max(map(len, backend.batches)) == 10
    assert backend.most_calls <= backend.writers


async def test_a_full_queue_turns_new_messages_away_and_lets_running_work_end(
    backend: FakeBackend, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settling shortens the queue's cause; only appending makes it longer."""
    monkeypatch.setattr(jobs, "LONGEST_QUEUE", 2)
    backend.gate.clear()
    taken = [submitted(queue, ANN, saying("m1"), is_new=True)]
    await everything_ran()
    taken += [submitted(queue, ANN, saying(message_id), is_new=True) for message_id in ("m2", "m3")]
    with pytest.raises(StoreUnavailable, match="Too many writes wait"):
        await submitted(queue, ANN, saying("m4"), is_new=True)
    taken.append(submitted(queue, ANN, saying("m5")))
    backend.gate.set()
    assert [(await answer).seq for answer in taken] == [1, 2, 3, 4]
    assert (await submitted(queue, ANN, saying("m6"), is_new=True)).seq == 5, "the queue is empty again"


async def test_a_queue_is_full_by_bytes_also_across_shards(
    backend: FakeBackend, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few large messages take as much memory as many small ones, and a store has as many queues as shards. What was
    written or failed counts no more."""
    monkeypatch.setattr(jobs, "LARGEST_QUEUE_BYTES", 1_000)
    backlog = Backlog()
    one, other = queue_on(backend, clock, backlog), queue_on(backend, clock, backlog)
    for is_failure in (False, True):
        backend.gate.clear()
        taken = [submitted(one, ANN, at_once("m1"))]
        await everything_ran()
        taken += [submitted(one, ANN, at_once(id), is_new=True, size=500) for id in ("m2", "m3")]
        with pytest.raises(StoreUnavailable, match="Too many writes wait"):
            await submitted(other, BOB, at_once("m1"), is_new=True, size=1)
        if is_failure:
            backend.errors.append(StoreUnavailable())
        backend.gate.set()
        results = await asyncio.gather(*taken, return_exceptions=True)
        assert any(isinstance(result, StoreUnavailable) for result in results) == is_failure
        assert (backlog.rows, backlog.size) == (0, 0)


async def test_closing_waits_for_all_that_was_submitted(backend: FakeBackend, queue: WriteQueue) -> None:
    """Also for what is not on its way yet; afterwards nothing is taken."""
    backend.gate.clear()
    answers = [submitted(queue, ANN, saying("m1"))]
    await everything_ran()
    answers.append(submitted(queue, ANN, saying("m2")))
    closing = asyncio.create_task(queue.close())
    await everything_ran()
    assert not closing.done()
    with pytest.raises(StoreUnavailable, match="closed"):
        await submitted(queue, BOB, saying("m1", BOB))
    backend.gate.set()
    await closing
    assert all(answer.done() for answer in answers)
    assert backend.ids == {ANN: {"m1", "m2"}}


async def test_few_rows_are_remembered_and_a_forgotten_one_costs_a_refusal(
    backend: FakeBackend, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million conversations do not fill the memory."""
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 2)
    keys = [ConversationKey.of(f"c{number}") for number in range(3)]
    for key in keys:
        await submitted(queue, key, saying("m1", key))
    await submitted(queue, keys[2], saying("m2", keys[2]))
    assert backend.refusals == 0
    await submitted(queue, keys[0], saying("m2", keys[0]))
    assert backend.refusals == 1


async def test_rows_that_are_not_remembered_are_read_first_once_most_of_them_exist(
    backend: FakeBackend, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more people than are remembered, each message would be written twice; new people cost no reading."""
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 0)
    keys = [ConversationKey.of(f"c{number}") for number in range(40)]
    for key in keys:
        await submitted(queue, key, saying("m1", key))
    assert (backend.loaded, backend.refusals) == ([], 0)
    for key in keys:
        await submitted(queue, key, saying("m2", key))
    assert 0 < backend.refusals < 10
    refused = backend.refusals
    for key in keys:
        await submitted(queue, key, saying("m3", key))
    assert backend.refusals == refused
    assert len(backend.loaded) == 80 - refused


async def test_a_row_that_is_kept_for_another_process_is_written_afterwards_with_all_that_came_meanwhile(
    backend: FakeBackend, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are not held up by it, and closing waits for it."""
    is_free = asyncio.Event()

    async def pause(_: int) -> None:
        await is_free.wait()

    monkeypatch.setattr(write_queue, "real_pause", pause)
    backend.kept[ANN] = 1
    kept = submitted(queue, ANN, saying("m1"))
    await everything_ran()
    assert not kept.done()
    more, other = submitted(queue, ANN, saying("m2")), submitted(queue, BOB, saying("m1", BOB))
    assert (await other).seq == 1
    is_free.set()
    await queue.close()
    assert [(await kept).seq, (await more).seq] == [1, 2]
    assert backend.batches == [[ANN], [BOB], [ANN]]


async def test_whoever_is_refused_again_and_again_asks_for_the_row_to_be_kept(
    backend: FakeBackend, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "ROUNDS", 6)
    backend.busy.add(ANN)
    with pytest.raises(StoreUnavailable):
        await submitted(queue, ANN, saying("m1"))
    assert [keep_ms > 0 for keep_ms in backend.asked_to_keep] == [False, False, False, True, True, True]
