"""What platforms report about replies that left: noted with the turn, and if one failed, a dead letter."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from harness.platforms.word_channel import WordChannel, body, said
from harness.servers import Echo, talking, until, watching
from turntake import ConversationKey, Rules, TurnTake
from turntake.deliver.outbound import Outbound
from turntake.deliver.sink import Answer, Sink
from turntake.deliver.turn import Turn
from turntake.platforms.channel import ChatEvent, ReplyStatus
from turntake.platforms.replies import Recipient

QUICK = Rules(silence_ms=1, typing_inference_ms=1)
WORD = {"x-word": "sesame"}
CHANNELS = {("knock", ""): WordChannel({"word": "sesame"}), ("knock", "sales"): WordChannel({"word": "sesame"})}


class Sending(Outbound):
    """Takes every reply, a line at a time."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def can_send(self, key: ConversationKey) -> bool:
        return True

    def parts(self, key: ConversationKey, text: str) -> tuple[str, ...]:
        return tuple(text.split("\n"))

    async def send(self, to: Recipient, index: int, text: str) -> str:
        self.sent.append(text)
        return f"out-{index}"


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    turns = TurnTake("memory://", rules=QUICK, agent=Echo(), outbound=Sending())
    with talking(turns, channels=CHANNELS) as client:
        yield client


def answered(client: httpx2.Client) -> str:
    """The id of a turn that was answered."""
    with watching(client) as events:
        assert post(client, said("hi")).status_code == 200
        turn_id: str = until(events, "answered")["turnId"]
        return turn_id


def post(client: httpx2.Client, *events: ChatEvent, path: str = "/webhooks/knock") -> httpx2.Response:
    return client.post(path, content=body(*events), headers=WORD)


def report(turn_id: str, status: Any, *, place: int = 0, at: int = 1_000, error: str = "") -> ChatEvent:
    reply = ReplyStatus(f"{turn_id}-{place}", status, error)
    return ChatEvent(kind="status", account="us", conversation="ann", id="out-0", sent_at=at, reply=reply)


def turn(client: httpx2.Client, turn_id: str) -> Any:
    return client.get(f"/v1/turns/{turn_id}").json()


def test_a_turn_says_that_its_answer_was_delivered_and_read(client: httpx2.Client) -> None:
    turn_id = answered(client)
    assert turn(client, turn_id)["deliveries"] == []
    with watching(client) as events:
        post(client, report(turn_id, "sent"), report(turn_id, "delivered"), report(turn_id, "read", at=2_000))
        told = [until(events, "delivery") for _ in range(2)]
    assert [(each["turnId"], each["index"], each["status"]) for each in told] == [
        (turn_id, 0, "delivered"),
        (turn_id, 0, "read"),
    ]
    assert turn(client, turn_id)["status"] == "answered"
    assert turn(client, turn_id)["deliveries"] == [
        {"index": 0, "status": "read", "at": "1970-01-01T00:00:02.000Z", "error": ""}
    ]


def test_an_answer_that_was_not_delivered_is_a_dead_letter(
    client: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The platform took it, and said minutes later that it failed: the turn is not answered any more."""
    turn_id = answered(client)
    with caplog.at_level(logging.WARNING, "turntake"):
        assert post(client, report(turn_id, "failed", error="the 24 hours are over")).status_code == 200
    (letter,) = client.get("/v1/dead-letters").json()["deadLetters"]
    assert (letter["id"], letter["reason"], letter["error"]) == (turn_id, "not delivered", "the 24 hours are over")
    assert (turn(client, turn_id)["status"], turn(client, turn_id)["replies"]) == ("dead", ["hi"])
    assert turn(client, turn_id)["deliveries"][0]["error"] == "the 24 hours are over"
    said = [record.message for record in caplog.records if record.name.startswith("turntake")]
    assert said == ["A reply was not delivered; its dead letter says why"]
    assert "24 hours" not in caplog.text
    post(client, report(turn_id, "failed", error="again"), report(turn_id, "delivered"))
    assert len(client.get("/v1/dead-letters").json()["deadLetters"]) == 1


def test_a_report_about_nothing_of_ours_is_acknowledged(client: httpx2.Client) -> None:
    """Of another account, an unknown turn, a reply that was never sent, or a message that somebody else sent."""
    turn_id = answered(client)
    assert post(client, report(turn_id, "failed"), path="/webhooks/knock/sales").status_code == 200
    strange = [ReplyStatus(id, "failed") for id in ("", "-0", "turn_ffff-0", f"{turn_id}-1", f"{turn_id}-x", "é" * 9)]
    for each in strange:
        event = ChatEvent(kind="status", conversation="ann", id="out-0", reply=each)
        assert post(client, event).status_code == 200
    assert client.get("/v1/dead-letters").json()["deadLetters"] == []
    assert turn(client, turn_id)["deliveries"] == []


@pytest.mark.parametrize(("delivery", "noted"), [("all", 2), ("failed", 1), ("none", 0)])
def test_which_reports_are_noted_is_a_setting(delivery: Any, noted: int) -> None:
    turns = TurnTake("memory://", rules=QUICK, agent=Echo(), outbound=Sending())
    with talking(turns, channels=CHANNELS, delivery=delivery) as client:
        first, second = answered(client), answered_again(client)
        post(client, report(first, "delivered"), report(second, "failed"))
        assert sum(len(turn(client, each)["deliveries"]) for each in (first, second)) == noted


def answered_again(client: httpx2.Client) -> str:
    with watching(client) as events:
        post(client, said("ho"))
        turn_id: str = until(events, "answered")["turnId"]
        return turn_id


def test_a_retried_letter_sends_what_failed_and_nothing_else() -> None:
    """The agent is not asked again, what arrived is not repeated, and the turn is answered under its own id."""
    sending, asked = Sending(), Counting()
    with talking(TurnTake("memory://", rules=QUICK, agent=asked, outbound=sending), channels=CHANNELS) as client:
        turn_id = answered(client)
        assert sending.sent == ["one", "two", "three"]
        post(client, report(turn_id, "failed", place=1), report(turn_id, "delivered", place=2))
        with watching(client) as events:
            assert client.post(f"/v1/dead-letters/{turn_id}/retry").status_code == 202
            assert until(events, "answered")["turnId"] == turn_id
        assert sending.sent == ["one", "two", "three", "two"]
        assert (asked.times, turn(client, turn_id)["status"]) == (1, "answered")
        post(client, report(turn_id, "failed", place=1))  # the platform sends its report once more
        assert client.get("/v1/dead-letters").json()["deadLetters"] == []
        post(client, report(turn_id, "delivered", place=1, at=3_000))
        assert [each["status"] for each in turn(client, turn_id)["deliveries"]] == ["delivered", "delivered"]


class Counting(Sink):
    """An agent that answers in three lines."""

    def __init__(self) -> None:
        self.times = 0

    async def deliver(self, turn: Turn) -> Answer:
        self.times += 1
        return Answer(("one\ntwo\nthree",))
