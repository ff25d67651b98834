"""Platforms that are listened to."""

import asyncio
import logging

import pytest

from harness.platforms.word_channel import said
from turntake import ConfigurationError, ConversationKey, Rules, TurnTake
from turntake.accept.intake import Intake
from turntake.accept.listening import AGAIN_MS, listening
from turntake.platforms.listener import Listener, OnEvents
from turntake.testing.clock import VirtualClock

PATIENT = Rules(silence_ms=60_000, typing_inference_ms=60_000, max_wait_ms=600_000)


class Radio(Listener):
    """Plays its script: events are told, an exception ends the connection."""

    def __init__(self, *script: object) -> None:
        super().__init__({})
        self._script = list(script)
        self.connections = 0

    async def listen(self, on_events: OnEvents) -> None:
        self.connections += 1
        while self._script:
            next_one = self._script.pop(0)
            if isinstance(next_one, Exception):
                raise next_one
            await on_events([next_one])  # type: ignore[list-item]
        await asyncio.Event().wait()


async def test_what_is_heard_waits_and_typing_moves_the_deadline() -> None:
    clock = VirtualClock()
    radio = Radio(said("hi"), said("", kind="typing", ttl_ms=90_000, id=""))
    async with (
        TurnTake("memory://", rules=PATIENT, role="accept", clock=clock) as turns,
        listening({("radio", ""): radio}, Intake(turns), clock),
    ):
        await clock.advance(1)
        snapshot = await turns.store.find(ConversationKey.of("ann", channel="radio", account="us"))
        assert snapshot is not None
        assert [message.text for message in snapshot.messages] == ["hi"]
        assert snapshot.conversation.buffer is not None
        assert snapshot.conversation.buffer.due.reason == "activity"


async def test_a_lost_connection_is_made_again() -> None:
    clock = VirtualClock()
    radio = Radio(said("hi"), ConnectionError("gone"), said("ho"))
    async with (
        TurnTake("memory://", rules=PATIENT, role="accept", clock=clock) as turns,
        listening({("radio", "sales"): radio}, Intake(turns), clock),
    ):
        await clock.advance(AGAIN_MS + 1)
        snapshot = await turns.store.find(ConversationKey.of("ann", channel="radio", account="sales/us"))
        assert snapshot is not None
        assert [message.text for message in snapshot.messages] == ["hi", "ho"]
    assert radio.connections == 2


async def test_refused_credentials_are_said_once_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    radio = Radio(ConfigurationError("The token is not accepted."))
    with caplog.at_level(logging.ERROR, "turntake"):
        async with (
            TurnTake("memory://", rules=PATIENT, role="accept", clock=clock) as turns,
            listening({("radio", ""): radio}, Intake(turns), clock),
        ):
            await clock.advance(10 * AGAIN_MS)
    assert radio.connections == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
