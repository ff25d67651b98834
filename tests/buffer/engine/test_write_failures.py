"""Writes that fail or are refused: who is told, who is not, and that the queue goes on."""

import asyncio
from typing import cast

import pytest

from harness.fake_backend import FakeBackend, queue_on, reading_first, saying, submitted
from harness.writing import everything_ran
from turntake.buffer.engine import jobs, write_queue
from turntake.buffer.engine.backend import Backend, Refusal
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.engine.jobs import Call
from turntake.buffer.engine.write_queue import WriteQueue
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Conversation
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, PLAIN


def broken(draft: Draft) -> Appended:
    raise ZeroDivisionError("a rule is wrong")


async def test_when_the_store_fails_all_who_wait_are_told_and_the_next_is_served(
    backend: FakeBackend, queue: WriteQueue
) -> None:
    """What waits behind a silent server would only wait in vain."""
    backend.errors.append(StoreUnavailable("silent"))
    backend.gate.clear()
    first = submitted(queue, ANN, saying("m1"))
    await everything_ran()
    waiting = submitted(queue, ANN, saying("m2"))
    backend.gate.set()
    for answer in (first, waiting):
        with pytest.raises(StoreUnavailable, match="silent"):
            await answer
    assert len(backend.batches) == 1
    assert (await submitted(queue, ANN, saying("m3"))).seq == 1


async def test_after_a_failed_write_nothing_is_believed_about_its_row(backend: FakeBackend, queue: WriteQueue) -> None:
    """The store may have taken it all the same: what the queue remembered is dropped."""
    await submitted(queue, ANN, saying("m1"))
    backend.errors.append(StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await submitted(queue, ANN, saying("m2"))
    assert backend.refusals == 0
    assert (await submitted(queue, ANN, saying("m3"))).seq == 2
    assert backend.refusals == 1, "decided as if it were new, it was told what the store has"


async def test_after_a_failed_write_the_row_is_loaded_again(backend: FakeBackend, clock: VirtualClock) -> None:
    """While rows are read first, one that the queue remembers is not loaded; one that it dropped is."""
    queue = queue_on(backend, clock, rows=reading_first())
    for message_id in ("m1", "m2"):
        await submitted(queue, ANN, saying(message_id))
    assert backend.loaded == [ANN]
    backend.errors.append(StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await submitted(queue, ANN, saying("m3"))
    backend.rows[ANN] = Row(7, Conversation(next_seq=9))
    assert (await submitted(queue, ANN, saying("m4"))).seq == 9
    assert (backend.loaded, backend.refusals) == ([ANN, ANN], 0)


async def test_a_row_that_nobody_can_read_harms_no_other(backend: FakeBackend, clock: VirtualClock) -> None:
    """It fails the loading of all: they are taken for new then, and the swap tells what there is of each."""
    queue = queue_on(backend, clock, rows=reading_first())
    backend.rows[BOB] = Row(7, Conversation(next_seq=9))
    backend.unreadable.add(ANN)
    backend.unwritable[ANN] = ValueError("a row that nobody can read")
    broken, fine = submitted(queue, ANN, saying("m1")), submitted(queue, BOB, saying("m1", BOB))
    with pytest.raises(ValueError, match="nobody can read"):
        await broken
    assert (await fine).seq == 9
    assert backend.batches == [[ANN, BOB], [BOB]]


async def test_an_operation_that_breaks_fails_alone(backend: FakeBackend, queue: WriteQueue) -> None:
    """Not those of the same conversation, nor those of others in the same write."""
    operations = [(ANN, saying("m1")), (ANN, broken), (ANN, saying("m2")), (BOB, saying("m1", BOB))]
    answers = await asyncio.gather(
        *(submitted(queue, key, operation) for key, operation in operations), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [Appended, ZeroDivisionError, Appended, Appended]
    assert backend.ids == {ANN: {"m1", "m2"}, BOB: {"m1"}}


async def test_an_error_of_ours_fails_its_batch_and_not_those_who_wait(backend: FakeBackend, queue: WriteQueue) -> None:
    """Only a store that is not there is a reason to send everybody away."""
    backend.errors.append(TypeError("cannot be packed"))
    backend.gate.clear()
    first = submitted(queue, ANN, saying("m1"))
    await everything_ran()
    waiting = submitted(queue, ANN, saying("m2"))
    backend.gate.set()
    with pytest.raises(TypeError):
        await first
    assert (await waiting).status == "buffered"


async def test_a_conversation_that_is_always_refused_is_given_up(
    backend: FakeBackend, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever, and the queue is free again."""
    monkeypatch.setattr(write_queue, "ROUNDS", 3)

    class Restless(FakeBackend):
        def _put(self, draft: Draft) -> Refusal:
            return Refusal(Row(draft.row.version + 1))

    restless = Restless()
    with pytest.raises(StoreUnavailable, match="Too many processes"):
        await submitted(WriteQueue(cast(Backend, restless), 0, VirtualClock()), ANN, saying("m1"))
    assert len(restless.batches) == 3


async def test_the_queue_is_empty_again_after_a_failure(
    backend: FakeBackend, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or every outage would make it shorter."""
    monkeypatch.setattr(jobs, "LONGEST_QUEUE", 2)
    for _ in range(3):
        backend.errors.append(StoreUnavailable())
        backend.gate.clear()
        taken = [submitted(queue, ANN, saying("m1"), is_new=True)]
        await everything_ran()
        taken += [submitted(queue, ANN, saying(message_id), is_new=True) for message_id in ("m2", "m3")]
        backend.gate.set()
        await asyncio.gather(*taken, return_exceptions=True)
    assert (await submitted(queue, ANN, saying("m1"), is_new=True)).seq == 1


async def test_a_caller_who_gives_up_takes_nobody_along(backend: FakeBackend, queue: WriteQueue) -> None:
    """What was submitted is written, and the others have their answers."""
    backend.gate.clear()
    gone, there = submitted(queue, ANN, saying("m1")), submitted(queue, ANN, saying("m2"))
    await everything_ran()
    gone.cancel()
    backend.gate.set()
    assert (await there).seq == 2
    assert backend.ids[ANN] == {"m1", "m2"}


async def test_a_conversation_that_everybody_writes_to_fails_alone(
    backend: FakeBackend, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for their own writes only."""
    monkeypatch.setattr(write_queue, "ROUNDS", 3)
    backend.busy.add(ANN)
    backend.gate.clear()
    answers = []
    for key, message_id in ((ANN, "m1"), (BOB, "m1"), (BOB, "m2")):
        answers.append(submitted(queue, key, saying(message_id, key)))
        await everything_ran()
    backend.gate.set()
    with pytest.raises(StoreUnavailable, match="at once"):
        await answers[0]
    assert [(await answer).seq for answer in answers[1:]] == [1, 2]


class Several(Call[list[str]]):
    """A message with the id of the item, for each conversation that the items are submitted for."""

    def __init__(self, items: int) -> None:
        super().__init__(asyncio.get_running_loop(), items)
        self.statuses: list[str] = []

    def run(self, draft: Draft, item: str) -> None:
        self.statuses.append(draft.append(Append(draft.key, Message(item), PLAIN), b"").status)

    def answer(self) -> list[str]:
        return self.statuses


async def test_what_is_done_is_not_undone_by_the_failure_of_another(backend: FakeBackend, clock: VirtualClock) -> None:
    """A message that was known already shares its batch with one whose write fails. Its caller has sent another one
    elsewhere, and is answered once both are known."""
    elsewhere = FakeBackend()
    for key in (ANN, BOB):
        await submitted(queue_on(backend, clock), key, saying("m1", key))
    elsewhere.gate.clear()
    queue, call = queue_on(backend, clock), Several(2)
    queue_on(elsewhere, clock).submit(ANN, call, "m1")
    queue.submit(ANN, call, "m1")
    backend.refuses_then_fails = True
    failed = submitted(queue, BOB, saying("m2", BOB))
    with pytest.raises(StoreUnavailable):
        await failed
    assert not call.future.done()
    elsewhere.gate.set()
    assert {"buffered", "duplicate"} <= set(await call.future)
