"""What the write queue tells other processes: deadlines that come soon, and answers that were stopped."""

import asyncio

from harness.fake_backend import FakeBackend, at_once, queue_on, saying, submitted
from turntake import Rules
from turntake.buffer.engine.write_queue import HINT_LATE_MS, WriteQueue
from turntake.buffer.store import HORIZON_MS
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Answered, Progress
from turntake.rules.key import ConversationKey
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, PLAIN

QUICK = Rules(silence_ms=500, typing_inference_ms=0)


async def test_a_hint_is_given_for_what_is_due_before_the_horizon_only(
    backend: FakeBackend, queue: WriteQueue, clock: VirtualClock
) -> None:
    """Whoever wakes for one hint sees everything, so later deadlines need none while it is ahead."""
    await submitted(queue, ANN, saying("m1"))
    assert backend.published == []
    await submitted(queue, BOB, at_once("m1", BOB))
    await clock.advance(1)
    await submitted(queue, BOB, at_once("m2", BOB))
    assert [hint.due_at for hint in backend.published] == [clock.now() - 1, clock.now()]
    soon = ConversationKey.of("soon")
    assert PLAIN.silence_ms == HORIZON_MS
    await clock.advance(1)
    await submitted(queue, soon, saying("m1", soon, QUICK))
    await clock.advance(1)
    await submitted(queue, soon, saying("m2", soon, QUICK))
    assert [hint.due_at for hint in backend.published[2:]] == [clock.now() - 1 + QUICK.silence_ms]


async def test_a_hint_that_nobody_heard_is_given_again(backend: FakeBackend, clock: VirtualClock) -> None:
    """A refused write says nothing to the others: once it is taken, they must hear of it."""
    one, other = queue_on(backend, clock), queue_on(backend, clock)
    await submitted(one, ANN, saying("m1"))
    await submitted(other, ANN, saying("m2", ANN, QUICK))
    assert backend.refusals == 1
    assert [hint.due_at for hint in backend.published] == [clock.now() + QUICK.silence_ms]


async def test_a_hint_of_a_failed_write_is_given_again(
    backend: FakeBackend, queue: WriteQueue, clock: VirtualClock
) -> None:
    """The server was away; what is sent again is due just as soon."""
    backend.errors.append(StoreUnavailable())
    for _ in range(2):
        operation = submitted(queue, ANN, saying("m1", ANN, QUICK))
        await asyncio.gather(operation, return_exceptions=True)
    assert [hint.due_at for hint in backend.published] == [clock.now() + QUICK.silence_ms]


async def test_a_hint_that_may_have_been_acted_on_already_is_not_relied_on(
    backend: FakeBackend, queue: WriteQueue, clock: VirtualClock
) -> None:
    """Clocks are some milliseconds apart: whoever was told of the first deadline may have looked before this one."""
    first_at = clock.now() + QUICK.silence_ms
    await submitted(queue, ANN, saying("m1", ANN, QUICK))
    await clock.advance(QUICK.silence_ms - HINT_LATE_MS)
    await submitted(queue, BOB, saying("m1", BOB, QUICK))
    assert [hint.due_at for hint in backend.published] == [first_at, clock.now() + QUICK.silence_ms]


async def test_a_message_is_stored_though_nobody_hears_of_its_interruption(
    backend: FakeBackend, queue: WriteQueue
) -> None:
    """Hints are optional. Whoever still answers is refused by the row."""
    await submitted(queue, ANN, at_once("m1"))
    assert await submitted(queue, ANN, lambda draft: draft.claim(60_000)) is not None
    backend.is_mute = True
    appended = await submitted(queue, ANN, saying("m2", ANN, Rules(on_busy="interrupt")))
    assert (appended.status, bool(appended.interrupted)) == ("buffered", True)


async def test_an_interruption_is_published_once_it_is_so(backend: FakeBackend, clock: VirtualClock) -> None:
    """Refused, it may turn out that the answer goes on: nobody must have stopped it by then."""
    interrupting = Rules(on_busy="interrupt")
    one, other = queue_on(backend, clock), queue_on(backend, clock)
    await submitted(one, ANN, at_once("m1"))
    turn = await submitted(one, ANN, lambda draft: draft.claim(60_000))
    assert turn is not None
    claim = Claim(ANN, backend.rows[ANN].conversation.epoch, turn, ())
    backend.published.clear()
    await submitted(other, ANN, lambda draft: draft.save(claim, Progress(("so",), 0)))
    await submitted(one, ANN, saying("m2", ANN, interrupting))
    assert [hint.interrupted for hint in backend.published if hint.interrupted] == [], "the answer is committed"
    await submitted(one, ANN, lambda draft: draft.settle(claim, Answered(("so",))))
    await clock.advance(30_000)
    turn = await submitted(one, ANN, lambda draft: draft.claim(60_000))
    assert turn is not None
    epoch = backend.rows[ANN].conversation.epoch
    await submitted(one, ANN, saying("m3", ANN, interrupting))
    told = [hint for hint in backend.published if hint.interrupted]
    assert [hint.interrupted for hint in told] == [((str(ANN), turn.id, epoch),)]
    assert told[0].due_at == clock.now() + HORIZON_MS, "nobody looks earlier for it"
