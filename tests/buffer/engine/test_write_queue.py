"""The write queue: operations of one conversation are decided on the newest row, written once, answered one by one."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import pytest

from turntake.buffer.engine import write_queue
from turntake.buffer.engine.backend import Backend, Refusal
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.engine.write_queue import HINT_LATE_MS, Call, SingleCall, WriteQueue
from turntake.buffer.store import HORIZON_MS, Hint
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Answered, Conversation, Progress
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended, Claim
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, OFF, PLAIN

QUICK = Rules(silence_ms=500, typing_inference_ms=0)
Operation = Callable[[Draft], Appended]
T = TypeVar("T")


class Table:
    """What a queue needs of a backend, in memory. It fails, stalls and refuses when it is told to."""

    def __init__(self) -> None:
        self.writers, self.batch = 2, 64
        self.loads_first = False
        self.hints = self
        self.published: list[Hint] = []
        self.rows: dict[ConversationKey, Row] = {}
        self.ids: dict[ConversationKey, set[str]] = {}
        self.batches: list[list[ConversationKey]] = []
        self.errors: list[Exception] = []
        self.is_deaf = False
        self.is_mute = False
        self.refuses_then_fails = False
        self.busy: set[ConversationKey] = set()
        self.refusals = 0
        self.under_way: list[ConversationKey] = []
        self.most_calls = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._calls = 0

    async def swap(self, shard: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        keys = [draft.key for draft in drafts]
        assert not set(keys) & set(self.under_way), "two writes to one conversation at a time"
        self.batches.append(keys)
        self.under_way += keys
        self._calls += 1
        self.most_calls = max(self.most_calls, self._calls)
        try:
            await self.gate.wait()
            if self.errors:
                raise self.errors.pop(0)
            answers = [self._put(draft) for draft in drafts]
        finally:
            self._calls -= 1
            self.under_way = [key for key in self.under_way if key not in keys]
        self.refusals += sum(answer is not None for answer in answers)
        if self.refuses_then_fails and None not in answers:
            self.errors.append(StoreUnavailable())
        if hint and None in answers:
            self.published.append(hint)
        return answers

    async def publish(self, hint: Hint) -> None:
        if self.is_mute:
            raise StoreUnavailable
        self.published.append(hint)

    def _put(self, draft: Draft) -> Refusal | None:
        if draft.key in self.busy:
            return Refusal(self.rows.get(draft.key, Row()))
        if self.is_deaf:
            self.is_deaf = False
            return Refusal(draft.row, is_read=False)
        row, ids = self.rows.get(draft.key, Row()), self.ids.setdefault(draft.key, set())
        known = frozenset(draft.added.keys() & ids)
        if known or row.version != draft.row.version:
            return Refusal(row, known)
        self.rows[draft.key] = draft.written
        ids.update(draft.added)
        return None


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def table() -> Table:
    return Table()


def queue_on(table: Table, clock: VirtualClock) -> WriteQueue:
    return WriteQueue(cast(Backend, table), 0, clock)


@pytest.fixture
def queue(table: Table, clock: VirtualClock) -> WriteQueue:
    return queue_on(table, clock)


def saying(message_id: str, key: ConversationKey = ANN) -> Operation:
    return lambda draft: draft.append(Append(key, Message(message_id), PLAIN), b"")


def at_once(message_id: str, key: ConversationKey = ANN) -> Operation:
    return lambda draft: draft.append(Append(key, Message(message_id), OFF), b"")


def broken(draft: Draft) -> Appended:
    raise ZeroDivisionError("a rule is wrong")


class New(SingleCall[T]):
    is_new = True


def submitted(
    queue: WriteQueue, key: ConversationKey, operation: Callable[[Draft], T], *, is_new: bool = False
) -> asyncio.Future[T]:
    call = New(operation) if is_new else SingleCall(operation)
    queue.submit(key, call)
    return call.future


async def settled() -> None:
    """Whatever can go on without waiting has done so."""
    await VirtualClock().advance(0)


async def test_a_refused_operation_is_decided_again_on_the_newer_row(table: Table, clock: VirtualClock) -> None:
    """Two processes that know nothing of each other write in turn; each number is given once."""
    one, other = queue_on(table, clock), queue_on(table, clock)
    assert (await submitted(one, ANN, saying("m1"))).seq == 1
    assert (await submitted(other, ANN, saying("m2"))).seq == 2
    assert table.refusals == 1, "it knew no row"
    assert (await submitted(one, ANN, saying("m3"))).seq == 3
    assert table.refusals == 2, "its row was old"
    assert (await submitted(one, ANN, saying("m4"))).seq == 4
    assert table.refusals == 2, "it wrote last, so it knows"


async def test_an_id_that_the_store_holds_is_a_duplicate_though_the_row_was_known(
    table: Table, queue: WriteQueue
) -> None:
    """A queue remembers rows and no ids: the store says so, and the rest of the batch is kept."""
    await submitted(queue, ANN, saying("m1"))
    answers = await asyncio.gather(
        *(submitted(queue, ANN, saying(message_id)) for message_id in ("m1", "m2", "m1", "m2"))
    )
    assert [answer.status for answer in answers] == ["duplicate", "buffered", "duplicate", "duplicate"]
    assert table.ids[ANN] == {"m1", "m2"}
    assert table.rows[ANN].conversation.next_seq == 3


async def test_a_draft_that_came_too_late_is_decided_again_by_a_later_time(
    table: Table, queue: WriteQueue, clock: VirtualClock
) -> None:
    """It was refused unread, so its row may still be right; the time of arrival is not."""
    table.is_deaf = True
    table.gate.clear()
    answer = submitted(queue, ANN, saying("m1"))
    await settled()
    clock.stall(5_000)
    table.gate.set()
    assert (await answer).due_at == clock.now() + PLAIN.silence_ms
    assert len(table.batches) == 2


async def test_a_late_draft_that_changes_nothing_is_still_compared(table: Table, clock: VirtualClock) -> None:
    """Refused unread, it knows no more than before: a claim that somebody else took over must not look held."""
    one, other = queue_on(table, clock), queue_on(table, clock)
    await submitted(one, ANN, at_once("m1"))
    turn = await submitted(one, ANN, lambda draft: draft.claim(100))
    assert turn is not None
    table.is_deaf = True
    assert await submitted(other, ANN, lambda draft: draft.extend(Claim(ANN, 1, turn, ()), 200)), (
        "the store's row says that it holds"
    )


async def test_when_the_store_fails_all_who_wait_are_told_and_the_next_is_served(
    table: Table, queue: WriteQueue
) -> None:
    """What waits behind a silent server would only wait in vain."""
    table.errors.append(StoreUnavailable("silent"))
    table.gate.clear()
    first = submitted(queue, ANN, saying("m1"))
    await settled()
    waiting = submitted(queue, ANN, saying("m2"))
    table.gate.set()
    for answer in (first, waiting):
        with pytest.raises(StoreUnavailable, match="silent"):
            await answer
    assert len(table.batches) == 1
    assert (await submitted(queue, ANN, saying("m3"))).seq == 1


async def test_after_a_failed_write_nothing_is_believed_about_its_row(table: Table, queue: WriteQueue) -> None:
    """The store may have taken it all the same: what the queue remembered is dropped."""
    await submitted(queue, ANN, saying("m1"))
    table.errors.append(StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await submitted(queue, ANN, saying("m2"))
    table.rows[ANN] = Row(7, Conversation(next_seq=9))
    assert (await submitted(queue, ANN, saying("m3"))).seq == 9


async def test_an_operation_that_breaks_fails_alone(table: Table, queue: WriteQueue) -> None:
    """Not those of the same conversation, nor those of others in the same write."""
    operations = [(ANN, saying("m1")), (ANN, broken), (ANN, saying("m2")), (BOB, saying("m1", BOB))]
    answers = await asyncio.gather(
        *(submitted(queue, key, operation) for key, operation in operations), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [Appended, ZeroDivisionError, Appended, Appended]
    assert table.ids == {ANN: {"m1", "m2"}, BOB: {"m1"}}


async def test_an_error_of_ours_fails_its_batch_and_not_those_who_wait(table: Table, queue: WriteQueue) -> None:
    """Only a store that is not there is a reason to send everybody away."""
    table.errors.append(TypeError("cannot be packed"))
    table.gate.clear()
    first = submitted(queue, ANN, saying("m1"))
    await settled()
    waiting = submitted(queue, ANN, saying("m2"))
    table.gate.set()
    with pytest.raises(TypeError):
        await first
    assert (await waiting).status == "buffered"


async def test_a_conversation_that_is_always_refused_is_given_up(
    table: Table, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever, and the queue is free again."""
    monkeypatch.setattr(write_queue, "ROUNDS", 3)

    class Restless(Table):
        def _put(self, draft: Draft) -> Refusal:
            return Refusal(Row(draft.row.version + 1))

    restless = Restless()
    with pytest.raises(StoreUnavailable, match="Too many processes"):
        await submitted(WriteQueue(cast(Backend, restless), 0, VirtualClock()), ANN, saying("m1"))
    assert len(restless.batches) == 3


async def test_two_conversations_are_written_in_parallel_and_one_never_twice(table: Table, queue: WriteQueue) -> None:
    """The table itself refuses two writes to one conversation at a time."""
    table.gate.clear()
    answers = [submitted(queue, ANN, saying("m1"))]
    await settled()
    answers += [
        submitted(queue, BOB, saying("m1", BOB)),
        submitted(queue, ANN, saying("m2")),
        submitted(queue, ANN, saying("m3")),
    ]
    await settled()
    assert table.under_way == [ANN, BOB]
    table.gate.set()
    assert [(await answer).seq for answer in answers] == [1, 1, 2, 3]
    assert table.batches == [[ANN], [BOB], [ANN]], "what waited was written together"
    assert table.most_calls == 2


async def test_no_more_writers_than_allowed_and_no_batch_larger(table: Table, queue: WriteQueue) -> None:
    """A crowd is written in few large batches, those who waited longest first."""
    table.batch = 10
    keys = [ConversationKey.of(f"c{number}") for number in range(95)]
    answers = await asyncio.gather(*(submitted(queue, key, saying("m1", key)) for key in keys))
    assert {answer.status for answer in answers} == {"buffered"}
    assert [key for batch in table.batches for key in batch] == keys
    assert max(map(len, table.batches)) == 10
    assert table.most_calls <= table.writers


async def test_a_full_queue_turns_new_messages_away_and_lets_running_work_end(
    table: Table, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settling shortens the queue's cause; only appending makes it longer."""
    monkeypatch.setattr(write_queue, "LONGEST_QUEUE", 2)
    table.gate.clear()
    taken = [submitted(queue, ANN, saying("m1"), is_new=True)]
    await settled()
    taken += [submitted(queue, ANN, saying(message_id), is_new=True) for message_id in ("m2", "m3")]
    with pytest.raises(StoreUnavailable, match="Too many writes wait"):
        await submitted(queue, ANN, saying("m4"), is_new=True)
    taken.append(submitted(queue, ANN, saying("m5")))
    table.gate.set()
    assert [(await answer).seq for answer in taken] == [1, 2, 3, 4]
    assert (await submitted(queue, ANN, saying("m6"), is_new=True)).seq == 5, "the queue is empty again"


async def test_the_queue_is_empty_again_after_a_failure(
    table: Table, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or every outage would make it shorter."""
    monkeypatch.setattr(write_queue, "LONGEST_QUEUE", 2)
    for _ in range(3):
        table.errors.append(StoreUnavailable())
        table.gate.clear()
        taken = [submitted(queue, ANN, saying("m1"), is_new=True)]
        await settled()
        taken += [submitted(queue, ANN, saying(message_id), is_new=True) for message_id in ("m2", "m3")]
        table.gate.set()
        await asyncio.gather(*taken, return_exceptions=True)
    assert (await submitted(queue, ANN, saying("m1"), is_new=True)).seq == 1


async def test_closing_waits_for_all_that_was_submitted(table: Table, queue: WriteQueue) -> None:
    """Also for what is not on its way yet; afterwards nothing is taken."""
    table.gate.clear()
    answers = [submitted(queue, ANN, saying("m1"))]
    await settled()
    answers.append(submitted(queue, ANN, saying("m2")))
    closing = asyncio.create_task(queue.close())
    await settled()
    assert not closing.done()
    with pytest.raises(StoreUnavailable, match="closed"):
        await submitted(queue, BOB, saying("m1", BOB))
    table.gate.set()
    await closing
    assert all(answer.done() for answer in answers)
    assert table.ids == {ANN: {"m1", "m2"}}


async def test_a_caller_who_gives_up_takes_nobody_along(table: Table, queue: WriteQueue) -> None:
    """What was submitted is written, and the others have their answers."""
    table.gate.clear()
    gone, there = submitted(queue, ANN, saying("m1")), submitted(queue, ANN, saying("m2"))
    await settled()
    gone.cancel()
    table.gate.set()
    assert (await there).seq == 2
    assert table.ids[ANN] == {"m1", "m2"}


async def test_few_rows_are_remembered_and_a_forgotten_one_costs_a_refusal(
    table: Table, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million conversations do not fill the memory."""
    monkeypatch.setattr(write_queue, "ROWS_REMEMBERED", 2)
    keys = [ConversationKey.of(f"c{number}") for number in range(3)]
    for key in keys:
        await submitted(queue, key, saying("m1", key))
    await submitted(queue, keys[2], saying("m2", keys[2]))
    assert table.refusals == 0
    await submitted(queue, keys[0], saying("m2", keys[0]))
    assert table.refusals == 1


async def test_a_hint_is_given_for_what_is_due_before_the_horizon_only(
    table: Table, queue: WriteQueue, clock: VirtualClock
) -> None:
    """Whoever wakes for one hint sees everything, so later deadlines need none while it is ahead."""
    await submitted(queue, ANN, saying("m1"))
    assert table.published == []
    await submitted(queue, BOB, at_once("m1", BOB))
    await clock.advance(1)
    await submitted(queue, BOB, at_once("m2", BOB))
    assert [hint.due_at for hint in table.published] == [clock.now() - 1, clock.now()]
    soon = ConversationKey.of("soon")
    assert PLAIN.silence_ms == HORIZON_MS
    await clock.advance(1)
    await submitted(queue, soon, lambda draft: draft.append(Append(soon, Message("m1"), QUICK), b""))
    await clock.advance(1)
    await submitted(queue, soon, lambda draft: draft.append(Append(soon, Message("m2"), QUICK), b""))
    assert [hint.due_at for hint in table.published[2:]] == [clock.now() - 1 + QUICK.silence_ms]


async def test_a_hint_that_nobody_heard_is_given_again(table: Table, clock: VirtualClock) -> None:
    """A refused write says nothing to the others: once it is taken, they must hear of it."""
    one, other = queue_on(table, clock), queue_on(table, clock)
    await submitted(one, ANN, saying("m1"))
    await submitted(other, ANN, lambda draft: draft.append(Append(ANN, Message("m2"), QUICK), b""))
    assert table.refusals == 1
    assert [hint.due_at for hint in table.published] == [clock.now() + QUICK.silence_ms]


async def test_a_hint_of_a_failed_write_is_given_again(table: Table, queue: WriteQueue, clock: VirtualClock) -> None:
    """The server was away; what is sent again is due just as soon."""
    table.errors.append(StoreUnavailable())
    for _ in range(2):
        operation = submitted(queue, ANN, lambda draft: draft.append(Append(ANN, Message("m1"), QUICK), b""))
        await asyncio.gather(operation, return_exceptions=True)
    assert [hint.due_at for hint in table.published] == [clock.now() + QUICK.silence_ms]


async def test_a_hint_that_may_have_been_acted_on_already_is_not_relied_on(
    table: Table, queue: WriteQueue, clock: VirtualClock
) -> None:
    """Clocks are some milliseconds apart: whoever was told of the first deadline may have looked before this one."""
    first_at = clock.now() + QUICK.silence_ms
    await submitted(queue, ANN, lambda draft: draft.append(Append(ANN, Message("m1"), QUICK), b""))
    await clock.advance(QUICK.silence_ms - HINT_LATE_MS)
    await submitted(queue, BOB, lambda draft: draft.append(Append(BOB, Message("m1"), QUICK), b""))
    assert [hint.due_at for hint in table.published] == [first_at, clock.now() + QUICK.silence_ms]


async def test_a_message_is_stored_though_nobody_hears_of_its_interruption(table: Table, queue: WriteQueue) -> None:
    """Hints are optional. Whoever still answers is refused by the row."""
    await submitted(queue, ANN, at_once("m1"))
    assert await submitted(queue, ANN, lambda draft: draft.claim(60_000)) is not None
    table.is_mute = True
    interrupting = Rules(on_busy="interrupt")
    told = await submitted(queue, ANN, lambda draft: draft.append(Append(ANN, Message("m2"), interrupting), b""))
    assert (told.status, bool(told.interrupted)) == ("buffered", True)


class Several(Call[list[str]]):
    """A message with the id of the item, for each conversation that the items are submitted for."""

    def __init__(self, items: int) -> None:
        super().__init__(items)
        self.statuses: list[str] = []

    def run(self, draft: Draft, item: str) -> None:
        self.statuses.append(draft.append(Append(draft.key, Message(item), PLAIN), b"").status)

    def answer(self) -> list[str]:
        return self.statuses


async def test_what_is_done_is_not_undone_by_the_failure_of_another(clock: VirtualClock) -> None:
    """A message that was known already shares its batch with one whose write fails. Its caller has sent another one
    elsewhere, and is answered once both are known."""
    table, elsewhere = Table(), Table()
    for key in (ANN, BOB):
        await submitted(queue_on(table, clock), key, saying("m1", key))
    elsewhere.gate.clear()
    queue, call = queue_on(table, clock), Several(2)
    queue_on(elsewhere, clock).submit(ANN, call, "m1")
    queue.submit(ANN, call, "m1")
    table.refuses_then_fails = True
    failed = submitted(queue, BOB, saying("m2", BOB))
    with pytest.raises(StoreUnavailable):
        await failed
    assert not call.future.done()
    elsewhere.gate.set()
    assert {"buffered", "duplicate"} <= set(await call.future)


async def test_an_interruption_is_published_once_it_is_so(table: Table, clock: VirtualClock) -> None:
    """Refused, it may turn out that the answer goes on: nobody must have stopped it by then."""
    interrupting = Rules(on_busy="interrupt")
    one, other = queue_on(table, clock), queue_on(table, clock)
    await submitted(one, ANN, at_once("m1"))
    turn = await submitted(one, ANN, lambda draft: draft.claim(60_000))
    assert turn is not None
    claim = Claim(ANN, 1, turn, ())
    table.published.clear()
    await submitted(other, ANN, lambda draft: draft.save(claim, Progress(("so",), 0)))
    await submitted(one, ANN, lambda draft: draft.append(Append(ANN, Message("m2"), interrupting), b""))
    assert [hint.interrupted for hint in table.published if hint.interrupted] == [], "the answer is committed"
    await submitted(one, ANN, lambda draft: draft.settle(claim, Answered(("so",))))
    await clock.advance(30_000)
    turn = await submitted(one, ANN, lambda draft: draft.claim(60_000))
    assert turn is not None
    await submitted(one, ANN, lambda draft: draft.append(Append(ANN, Message("m3"), interrupting), b""))
    assert [hint.interrupted for hint in table.published if hint.interrupted] == [((str(ANN), turn.id, 2),)]


async def test_a_conversation_that_everybody_writes_to_fails_alone(
    table: Table, queue: WriteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for their own writes only."""
    monkeypatch.setattr(write_queue, "ROUNDS", 3)
    table.busy.add(ANN)
    table.gate.clear()
    answers = []
    for key, message_id in ((ANN, "m1"), (BOB, "m1"), (BOB, "m2")):
        answers.append(submitted(queue, key, saying(message_id, key)))
        await settled()
    table.gate.set()
    with pytest.raises(StoreUnavailable, match="at once"):
        await answers[0]
    assert [(await answer).seq for answer in answers[1:]] == [1, 2]
