"""Messages that come during an answer where the rules say "reject": kept, not answered, and told once per turn."""

import pytest

from harness.fake_outbound import Postbox
from harness.turns import ADA, say
from turntake import Arrival, Message, Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.observe.observer import Observer
from turntake.platforms.replies import Recipient
from turntake.rules.key import ConversationKey
from turntake.testing.clock import VirtualClock

REJECT = Rules(silence_ms=0, typing_inference_ms=0, on_busy="reject", busy_text="Later.\n@de Später.")


class Rejected(Observer):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def rejected(self, at: int, key: ConversationKey, message: Message, appended: object) -> None:
        self.texts.append(message.text)


class Addressed(Postbox):
    """Keeps what each reply is about, too."""

    def __init__(self) -> None:
        super().__init__()
        self.turn_ids: list[str] = []

    async def send(self, to: Recipient, index: int, text: str) -> str:
        self.turn_ids.append(to.turn_id)
        return await super().send(to, index, text)


async def test_the_person_is_told_once_per_turn(clock: VirtualClock, store: MemoryStore) -> None:
    postbox, seen = Addressed(), Rejected()

    async def answer(turn: Turn) -> str:
        await clock.sleep(1_000)
        return f"re: {turn.text}"

    turns = TurnTake(store, rules=REJECT, agent=answer, outbound=postbox, clock=clock, observers=[seen])
    async with turns:
        for text in ("a", "b", "c"):
            await say(turns, text)
            await clock.advance(100)
        await clock.advance(1_000)
        await say(turns, "d")
        await clock.advance(100)
        await say(turns, "e")
        await clock.advance(2_000)
        records = await turns.store.history.turns(ADA, 10)
    assert postbox.sent == ["Later.", "re: a", "Later.", "re: d"]
    assert seen.texts == ["b", "c", "e"]
    told = [record.id for record in reversed(records) if record.id in postbox.turn_ids]
    assert postbox.turn_ids == [told[1], told[0], told[3], told[2]], "each is about a turn that can be looked up"
    assert [record.status for record in reversed(records)] == [
        "answered",
        "rejected",
        "rejected",
        "answered",
        "rejected",
    ]


async def test_the_notice_is_in_the_senders_language(clock: VirtualClock, store: MemoryStore) -> None:
    postbox = Postbox()

    async def answer(turn: Turn) -> None:
        await clock.sleep(1_000)

    turns = TurnTake(store, rules=REJECT, agent=answer, outbound=postbox, clock=clock, shutdown_ms=0)
    async with turns:
        await say(turns, "a")
        await clock.advance(100)
        (receipt,) = await turns.accept([Arrival(ADA, Message("m2", "b", metadata={"language": "de"}))])
        await clock.advance(100)
    assert (receipt.status, receipt.reason, receipt.due_at) == ("rejected", "busy", None)
    assert postbox.sent == ["Später."]


async def test_a_notice_that_cannot_be_sent_harms_nobody(
    clock: VirtualClock, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    postbox = Postbox()
    postbox.failures = 1

    async def answer(turn: Turn) -> str:
        await clock.sleep(1_000)
        return f"re: {turn.text}"

    async with TurnTake(store, rules=REJECT, agent=answer, outbound=postbox, clock=clock) as turns:
        await say(turns, "a")
        await clock.advance(100)
        await say(turns, "b")
        await clock.advance(2_000)
    assert postbox.sent == ["re: a"]
    assert "could not be told" in caplog.text
