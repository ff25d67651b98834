"""A turn's row and its conversation's row are two reads: what may happen between them, and who is told of the end."""

from typing import cast

from harness.fake_backend import FakeBackend, queue_on
from turntake.buffer.engine.archive import TurnRow
from turntake.buffer.engine.backend import Backend, Messages
from turntake.buffer.engine.draft import Row
from turntake.buffer.engine.history import CasHistory
from turntake.buffer.engine.letters import CasLetters
from turntake.rules.conversation import Answered, Closed, Dead, Settlement
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.model import Model
from turntake.rules.records import Append
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, LEASE_MS, OFF


class OneTurn(FakeBackend):
    """A backend, and its archive, with one turn that ended; the first `open_for` reads still find it open."""

    def __init__(self, settlement: Settlement, open_for: int = 0) -> None:
        super().__init__()
        model = Model()
        model.append([Append(ANN, Message("m1", "hi"), OFF)], 0)
        (claim,) = model.claim(1, LEASE_MS, 0)
        model.settle(claim, settlement, 5)
        self.closed: Closed = model.closed[claim.turn.id]
        self.rows[ANN] = Row(1, model.conversations[ANN])
        self.archive = self
        self._messages = model.messages[ANN]
        self._open_for = open_for

    async def turn(self, turn_id: str) -> TurnRow:
        self._open_for -= 1
        is_open = self._open_for >= 0
        return TurnRow(ANN, turn_id, None if is_open else self.closed, self.closed.is_letter and not is_open)

    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        return {number: self._messages[number] for number in range(head, tail + 1)}

    def shard_of(self, key: ConversationKey) -> int:
        return 0


async def test_a_turn_that_closes_while_it_is_read_is_shown_closed() -> None:
    """Its conversation no longer has it, so its row is read again."""
    backend = OneTurn(Answered(("hello",)), open_for=1)
    record = await CasHistory(cast(Backend, backend)).turn(backend.closed.id)
    assert record is not None
    assert (record.status, [message.id for message in record.messages]) == ("answered", ["m1"])


async def test_a_retried_letter_is_due_at_once_for_other_processes_too(clock: VirtualClock) -> None:
    """They hear of it, and need not wait until they look by themselves."""
    backend = OneTurn(Dead("gave up"))
    queue = queue_on(backend, clock)
    letters = CasLetters(cast(Backend, backend), clock, lambda key: queue)
    assert await letters.retry(backend.closed.id) is not None
    assert [hint.due_at for hint in backend.published] == [clock.now()]
