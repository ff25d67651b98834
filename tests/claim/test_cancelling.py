"""Agents that are told of an interruption: each once, and only for its own turn."""

import asyncio

import pytest

from turntake.claim import cancelling
from turntake.claim.cancelling import Cancelling
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.deliver.turn import Turn
from turntake.rules.conversation import Conversation
from turntake.rules.key import ConversationKey
from turntake.rules.records import Claim
from turntake.rules.rules import Rules
from turntake.rules.transitions import claim, receive


class Told(Sink):
    def __init__(self) -> None:
        self.names: list[str] = []

    async def deliver(self, turn: Turn) -> Answer | Pending:
        return Pending(60_000)

    async def cancel(self, claim: Claim) -> None:
        self.names.append(claim.key.conversation)


def claimed(name: str) -> Claim:
    key = ConversationKey.of(name)
    conversation = claim(receive(Conversation(), Rules(), 0).conversation, key, 60_000, 5_000)
    assert conversation.turn is not None
    return Claim(key, conversation.epoch, conversation.turn, ())


async def test_whoever_promised_a_turn_is_told_once_that_it_is_over() -> None:
    agent, ann = Told(), claimed("ann")
    agents = Cancelling(agent)
    agents.promised(ann)
    agents.interrupted(ann.key, "turn_other", None, None)
    agents.interrupted(ann.key, ann.turn.id, ann.epoch - 1, None)
    assert not agents._tasks, "neither another turn nor another claim is this one"
    for _ in range(2):
        agents.interrupted(ann.key, ann.turn.id, ann.epoch, None)
    await asyncio.gather(*agents._tasks)
    assert agent.names == ["ann"]


async def test_no_more_promises_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten first."""
    monkeypatch.setattr(cancelling, "MOST_PROMISED", 2)
    agent, claims = Told(), [claimed(name) for name in ("ann", "bob", "eve")]
    agents = Cancelling(agent)
    for each in claims:
        agents.promised(each)
    for each in claims:
        agents.interrupted(each.key, each.turn.id, None, None)
    await asyncio.gather(*agents._tasks)
    assert agent.names == ["bob", "eve"]
