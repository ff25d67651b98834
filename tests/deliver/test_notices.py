"""What people are told that is no answer: each in a task of its own, and none keeps a process from stopping."""

import asyncio

import pytest

from harness.fake_outbound import Postbox
from turntake.deliver import notices
from turntake.deliver.notices import Notices
from turntake.platforms.replies import Recipient
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message

ANN = ConversationKey.of("ann")
HELLO = Message("m1", "hello")


class Silent(Postbox):
    """Never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.given_up = 0

    async def send(self, to: Recipient, index: int, text: str) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up += 1
        return ""


class Pieces(Postbox):
    """Takes one word at a time."""

    def parts(self, key: ConversationKey, reply: str) -> tuple[str, ...]:
        return tuple(reply.split())


class NotThere(Postbox):
    """Has no way to this person."""

    def can_send(self, key: ConversationKey) -> bool:
        return False


async def test_those_on_their_way_are_given_a_moment_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "CLOSE_GRACE_MS", 50)
    outbound = Silent()
    told = Notices(outbound)
    told.send(ANN, "turn_1", HELLO, "Later.")
    async with asyncio.timeout(20):
        await told.close()
    await asyncio.gather(*told._tasks, return_exceptions=True)
    assert outbound.given_up == 1


async def test_those_that_can_be_sent_are_sent_before_the_end() -> None:
    """And none where there is nothing to say, or no way to say it."""
    outbound, nowhere = Postbox(), NotThere()
    for told, text in ((Notices(outbound), "Later."), (Notices(outbound), ""), (Notices(nowhere), "Later.")):
        told.send(ANN, "turn_1", HELLO, text)
        await told.close()
    assert (outbound.sent, nowhere.sent) == (["Later."], [])


async def test_a_long_one_is_sent_in_pieces_each_at_its_place() -> None:
    """Receivers know a repetition by that."""
    outbound = Pieces()
    told = Notices(outbound)
    told.send(ANN, "turn_1", HELLO, "Later, please.")
    await told.close()
    assert list(zip(outbound.places, outbound.sent, strict=True)) == [(0, "Later,"), (1, "please.")]
