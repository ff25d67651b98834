"""Dead letters that somebody retries: an answer that is complete is only sent, from where it stopped."""

from harness.fake_outbound import Postbox
from harness.turns import ADA, AT_ONCE, only_turn, say
from turntake import GiveUp, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.platforms.replies import Recipient
from turntake.testing.clock import VirtualClock


class Expired(Postbox):
    """Its token expires after so many replies, and somebody renews it."""

    valid_for = 1

    async def send(self, to: Recipient, index: int, text: str) -> str:
        if not self.valid_for:
            raise GiveUp("the token expired")
        self.valid_for -= 1
        return await super().send(to, index, text)


async def test_a_letter_whose_sending_failed_is_sent_on_and_the_agent_is_not_asked_again(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """Nobody reads a part twice, nobody pays for a second answer, and the turn keeps its id."""
    asked = []
    postbox = Expired()

    async def answer(turn: Turn) -> list[str]:
        asked.append(turn.id)
        return ["one", "two", "three"]

    async with TurnTake(store, rules=AT_ONCE, agent=answer, outbound=postbox, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        (letter,) = (await store.letters.list(10)).items
        postbox.valid_for = 10
        await clock.advance(7_200_000)
        assert await turns.retry_letter(letter.id) is not None
        await clock.advance(10)
        record = await only_turn(turns)
    assert asked == [letter.id]
    assert (postbox.sent, postbox.places) == (["one", "two", "three"], [0, 1, 2])
    assert (record.id, record.status) == (letter.id, "answered")


async def test_a_letter_whose_agent_failed_is_asked_again(clock: VirtualClock, store: MemoryStore) -> None:
    """There is no answer to send."""
    asked = []

    async def answer(turn: Turn) -> str:
        asked.append(turn.text)
        if len(asked) == 1:
            raise GiveUp("no model")
        return "hello"

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(10)
        (letter,) = (await store.letters.list(10)).items
        await turns.retry_letter(letter.id)
        await clock.advance(10)
        statuses = {record.status for record in await store.history.turns(ADA, 10)}
    assert asked == ["hello", "hello"]
    assert statuses == {"dead", "answered"}
