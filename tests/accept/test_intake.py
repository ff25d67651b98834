"""What platforms report becomes messages: all that can be kept of each, and none holds up the others."""

import logging
from typing import Any

import pytest

from turntake import ConversationKey, TurnTake
from turntake.accept.homes import Home
from turntake.accept.intake import Intake
from turntake.buffer.store import Query
from turntake.platforms.channel import ChatEvent
from turntake.platforms.text_limit import TextLimit

ADA = ConversationKey.of("ada", channel="radio")


def event(id: str, text: str = "hi", **parts: Any) -> ChatEvent:
    return ChatEvent(kind="message", conversation="ada", id=id, text=text, **parts)


async def test_a_text_that_fills_its_platforms_longest_message_waits_for_its_rest() -> None:
    events = [event("1", "x" * 160)]
    async with TurnTake("memory://", role="accept") as turns:
        for channel in ("sms", "radio"):
            await Intake(turns, text_limits={"sms": TextLimit(160)}).take(channel, "", events)
        found = [await turns.store.find(ADA._replace(channel=channel)) for channel in ("sms", "radio")]
    buffers = [snapshot.conversation.buffer for snapshot in found if snapshot]
    assert [buffer.due.reason for buffer in buffers if buffer] == ["cut text", "silence"]


async def test_of_an_event_that_cannot_be_kept_whole_the_words_are(caplog: pytest.LogCaptureFixture) -> None:
    """It is authentic: refusing the webhook would have the platform send all of it again, for days."""
    events = [
        event("1"),
        event("2", metadata={"one": object()}),
        event("3", "cut \ud83d", sender="A\ud83d", reply_to="\ud83d"),
    ]
    async with TurnTake("memory://", role="accept") as turns:
        with caplog.at_level(logging.WARNING, "turntake"):
            await Intake(turns).take("radio", "", events)
        snapshot = await turns.store.find(ADA)
    assert snapshot is not None
    assert [(message.text, message.sender, message.reply_to) for message in snapshot.messages] == [
        ("hi", "", None),
        ("hi", "", None),
        ("cut ?", "A?", "?"),
    ]
    (record,) = caplog.records
    assert record.message == "Only the words of an event could be kept"
    assert "`metadata` holds what JSON cannot say" in vars(record)["reason"]


async def test_the_conversations_of_an_account_have_its_tenant_and_agent() -> None:
    """A webhook says neither; those of other accounts have the default tenant and no agent."""
    homes = {("radio", "sales"): Home("acme", "closer")}
    async with TurnTake("memory://", role="accept") as turns:
        intake = Intake(turns, homes=homes)
        await intake.take("radio", "sales", [event("1"), ChatEvent(kind="typing", conversation="ada")])
        await intake.take("radio", "", [event("1")])
        page = await turns.store.history.conversations(Query())
    found = {(key.tenant, key.account, conversation.agent) for key, conversation in page.items}
    assert found == {("acme", "sales/default", "closer"), ("default", "default", "")}
