"""Answers that leave for Discord: into the channel or to the interaction, once, and what refusals come to."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from harness.platforms.discord import TOKEN, DiscordApi, no
from harness.platforms.sending import send_and_close
from harness.platforms.server import FakeAnswer
from turntake import ConversationKey, GiveUp, RetryLater
from turntake.deliver.replies import Replies
from turntake.errors import SendFailed
from turntake.platforms.discord.replies import DiscordReplies
from turntake.platforms.discord.sealed_token import seal
from turntake.platforms.replies import Recipient
from turntake.rules.message import Message

COMMAND, BUTTON, FORM = 2, 3, 5


@pytest.fixture
def api() -> Iterator[DiscordApi]:
    with DiscordApi("8000") as api:
        yield api


def to(channel: str = "8000", turn: str = "turn_1", **interaction: Any) -> Recipient:
    key = ConversationKey.of(channel, channel="discord", account="9000", topic="@42")
    metadata = {"interaction": {"application_id": "9000"} | interaction} if interaction else {}
    return Recipient(key, turn, (Message("1", "hi"), Message("2", "there", metadata=metadata)))


def sender(api: DiscordApi, token: str = TOKEN) -> DiscordReplies:
    return DiscordReplies({"bot_token": token, "api_base": f"{api.url}/"})


async def send(api: DiscordApi, text: str, recipient: Recipient | None = None, first: int = 0) -> None:
    await send_and_close(Replies({("discord", ""): sender(api)}), recipient or to(), text, first)


async def test_an_answer_goes_to_the_channel_and_mentions_nobody(api: DiscordApi) -> None:
    await send(api, "hello @everyone")
    assert api.sent == [("8000", "hello @everyone")]
    assert api.pinged == []


async def test_the_same_reply_again_arrives_once(api: DiscordApi) -> None:
    """Discord knows it by its nonce; another reply, and the same of another turn, has another."""
    await send(api, "hello")
    await send(api, "hello")
    assert len(api.sent) == 1
    await send(api, "hello", first=1)
    await send(api, "hello", to(turn="turn_2"))
    assert len(api.sent) == 3


async def test_a_long_answer_leaves_in_pieces(api: DiscordApi) -> None:
    await send(api, "word " * 1_000)
    assert len(api.sent) == 3
    assert "".join(text for _, text in api.sent).count("word") == 1_000


@pytest.mark.parametrize("kind", [COMMAND, FORM])
async def test_the_first_answer_to_a_command_takes_the_place_of_thinking(api: DiscordApi, kind: int) -> None:
    """Later ones follow it."""
    api.interactions, api.thinking = {"token"}, {"token"}
    await send(api, "word " * 600, to(token="token", type=kind))
    assert [call.method for call in api.calls] == ["PATCH", "POST"]
    assert [chat for chat, _ in api.sent] == ["token", "token"]
    assert api.thinking == set()
    assert api.pinged == []


async def test_the_first_answer_to_a_command_may_be_sent_twice(api: DiscordApi) -> None:
    """The second time it takes its own place."""
    api.interactions = {"token"}
    for _ in range(2):
        await send(api, "hello", to(token="token", type=COMMAND))
    assert api.sent == [("token", "hello")]


async def test_an_answer_to_a_button_leaves_the_buttons_where_they_are(api: DiscordApi) -> None:
    """Here the original is the message with the buttons, and is not ours to replace."""
    api.interactions = {"token"}
    await send(api, "hello", to(token="token", type=BUTTON))
    assert [(call.method, call.path) for call in api.calls] == [("POST", "/webhooks/9000/token?wait=true")]
    assert api.originals == {}


async def test_the_tenth_answer_is_not_taken_for_the_first(api: DiscordApi) -> None:
    api.interactions = {"token"}
    await send(api, "hello", to(token="token", type=COMMAND), first=10)
    assert api.calls[0].method == "POST"


async def test_after_a_quarter_of_an_hour_a_command_is_not_to_be_answered(api: DiscordApi) -> None:
    with pytest.raises(GiveUp, match=r"\(404\): Unknown Webhook \[10015\]"):
        await send(api, "hello", to(token="gone", type=COMMAND))


@pytest.mark.parametrize("broken", [{"token": ""}, {"token": 5}, {"token": "t", "application_id": None}])
async def test_an_interaction_that_cannot_be_answered_is_answered_in_the_channel(api: DiscordApi, broken: Any) -> None:
    await send(api, "hello", to(**broken))
    assert api.sent == [("8000", "hello")]


@pytest.mark.parametrize("id", ["..", ".", "../users/@me", "8000/../1", "8000?x"])
def test_ids_cannot_lead_elsewhere(api: DiscordApi, id: str) -> None:
    """Whoever may post messages with any metadata must not choose what our token is sent to."""
    with pytest.raises(GiveUp, match="The channel's id"):
        sender(api).reply_call(to(id), "hi", "turn_1-0")
    with pytest.raises(GiveUp, match="The application's id"):
        sender(api).reply_call(to(token="t", application_id=id), "hi", "turn_1-0")


def test_a_token_cannot_lead_elsewhere(api: DiscordApi) -> None:
    for token in (".", ".."):
        with pytest.raises(GiveUp, match="token"):
            sender(api).reply_call(to(token=token), "hi", "turn_1-0")
    call = sender(api).reply_call(to(token="../../x?y", type=["odd"]), "hi", "turn_1-0")
    assert call.url == f"{api.url}/webhooks/9000/..%2F..%2Fx%3Fy?wait=true"
    assert "authorization" not in call.headers


async def test_a_sealed_token_answers_its_command(api: DiscordApi) -> None:
    api.interactions, api.thinking = {"token"}, {"token"}
    await send(api, "hello", to(sealed_token=seal("token", TOKEN), type=COMMAND))
    assert api.sent == [("token", "hello")]


@pytest.mark.parametrize("sealed", [seal("token", "another bot's"), "token", "!", "é", seal("token", TOKEN)[:-8]])
async def test_a_token_that_was_not_sealed_for_this_bot_is_not_used(api: DiscordApi, sealed: str) -> None:
    """Then the answer goes into the channel."""
    await send(api, "hello", to(sealed_token=sealed, type=COMMAND))
    assert api.sent == [("8000", "hello")]


async def test_throttling_says_when_to_come_again(api: DiscordApi) -> None:
    api.burst = 1
    await send(api, "one")
    with pytest.raises(RetryLater, match="throttles") as refused:
        await send(api, "two", first=1)
    assert refused.value.after_ms == 500
    await send(api, "two", first=1)
    assert [text for _, text in api.sent] == ["one", "two"]


@pytest.mark.parametrize(
    ("said", "after_ms"),
    [
        (FakeAnswer(429, {"retry_after": 64.5, "global": True}), 64_500),
        (FakeAnswer(429, b"<html>banned", {"retry-after": "600"}), 600_000),
        (FakeAnswer(429, {"retry_after": "soon"}, {"retry-after": "now"}), 5_000),
    ],
)
async def test_throttling_in_every_form(api: DiscordApi, said: FakeAnswer, after_ms: int) -> None:
    api.next.append(said)
    with pytest.raises(RetryLater) as refused:
        await send(api, "hello")
    assert refused.value.after_ms == after_ms


@pytest.mark.parametrize("status", [500, 502, 503, 408])
async def test_what_may_pass_is_tried_again(api: DiscordApi, status: int) -> None:
    api.next.append(FakeAnswer(status, b"oops"))
    with pytest.raises(SendFailed, match=str(status)):
        await send(api, "hello")


async def test_refusals_are_in_discords_own_words(api: DiscordApi) -> None:
    with pytest.raises(GiveUp, match=r"\(404\): Unknown Channel \[10003\]"):
        await send(api, "hello", to("8001"))
    api.closed.add("8000")
    with pytest.raises(GiveUp, match=r"\(403\): Missing Access \[50001\]"):
        await send(api, "hello")
    api.next.append(no(403, 50007, "Cannot send messages to this user"))
    with pytest.raises(GiveUp, match="Cannot send messages to this user"):
        await send(api, "hello")
    api.next.append(FakeAnswer(400, b"what"))
    with pytest.raises(GiveUp, match="gives no reason"):
        await send(api, "hello")


async def test_a_wrong_token_is_for_the_operator(api: DiscordApi) -> None:
    out = Replies({("discord", ""): sender(api, "old")})
    with pytest.raises(GiveUp, match="401: Unauthorized"):
        await out.send(to(), 0, "hello")
    await out.aclose()


async def test_a_text_that_is_too_long_is_told_by_its_field(api: DiscordApi) -> None:
    out = Replies({("discord", ""): sender(api)})
    with pytest.raises(GiveUp, match=r"Invalid Form Body; Must be 2000 or fewer in length. \[50035\]"):
        await out.send(to(), 0, "x" * 2_001)
    await out.aclose()


async def test_typing_is_shown_in_the_channel(api: DiscordApi) -> None:
    out = Replies({("discord", ""): sender(api)})
    async with out.composing(to()):
        await asyncio.to_thread(api.wait_for_calls, 1)
    assert api.typing == ["8000"]
    await out.aclose()


def test_after_a_command_discord_itself_shows_that_an_answer_comes(api: DiscordApi) -> None:
    assert sender(api).typing_call(to(token="token", type=COMMAND)) is None
    assert sender(api).typing_call(to(token="token", type=BUTTON)) is not None


def test_a_reply_quotes_a_message_that_is_one(api: DiscordApi) -> None:
    calls = [sender(api).reply_call(replace(to(), reply_to=id), "hi", "turn_1-0") for id in ("34", "postback:7", "")]
    quoted = {"message_id": "34", "fail_if_not_exists": False}
    assert [json.loads(call.body).get("message_reference") for call in calls] == [quoted, None, None]
