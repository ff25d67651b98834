"""Replies through Telegram, against an API that refuses what Telegram refuses."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from harness.platforms.sending import send_and_close
from harness.platforms.server import FakeAnswer
from harness.platforms.telegram import TOKEN, TelegramApi, refusal
from turntake import ConversationKey, GiveUp, RetryLater
from turntake.deliver.options import ReplyOptions
from turntake.deliver.replies import Replies
from turntake.errors import SendFailed
from turntake.platforms.replies import ApiResponse, Recipient
from turntake.platforms.telegram.replies import TelegramReplies
from turntake.rules.message import Message

QUOTE = {"reply_parameters": {"message_id": 10, "allow_sending_without_reply": True}}


@pytest.fixture
def api() -> Iterator[TelegramApi]:
    with TelegramApi() as api:
        yield api


def recipient(chat: str = "4711", topic: str = "") -> Recipient:
    key = ConversationKey.of(chat, channel="telegram", account="700700", topic=topic)
    return Recipient(key, "turn_1", (Message("10", "hi"),))


def replies(api: TelegramApi, **options: str) -> Replies:
    return Replies(
        {("telegram", ""): TelegramReplies({**api.options, **options})}, options=ReplyOptions(timeout_ms=5_000)
    )


async def send(api: TelegramApi, to: Recipient, text: str = "hello", **options: str) -> None:
    await send_and_close(replies(api, **options), to, text)


async def test_a_reply_is_plain_text_in_the_chat(api: TelegramApi) -> None:
    """Half a mark of Markdown would have it refused, so there is no parse mode."""
    await send(api, recipient(), "*Grüße_ <b>👋")
    assert api.sent == [("4711", "*Grüße_ <b>👋")]
    assert api.calls[0].json == {"chat_id": 4711, "text": "*Grüße_ <b>👋"}


async def test_a_long_reply_arrives_in_parts_and_in_order(api: TelegramApi) -> None:
    """Telegram counts in UTF-16, in which an emoji is two."""
    words = " ".join(f"👋👋👋👋word{number}" for number in range(900))
    await send(api, recipient(), words)
    assert len(api.sent) > 2
    assert " ".join(text.strip() for _, text in api.sent) == words


@pytest.mark.parametrize(
    ("chat", "topic", "where"),
    [
        ("-1002345678901", "5@4711", {"chat_id": -1002345678901, "message_thread_id": 5, **QUOTE}),
        ("-1002345678901", "@4711", {"chat_id": -1002345678901, **QUOTE}),
        ("bc77/4711", "", {"chat_id": 4711, "business_connection_id": "bc77"}),
        ("-1005", "direct-4711", {"chat_id": -1005, "direct_messages_topic_id": 4711}),
    ],
)
async def test_a_reply_goes_where_the_messages_came_from(
    api: TelegramApi, chat: str, topic: str, where: dict[str, object]
) -> None:
    """Into the topic, in the name of the business account, and in a group with a quote."""
    await send(api, recipient(chat, topic))
    assert api.calls[0].json == {**where, "text": "hello"}
    assert len(api.sent) == 1


async def test_typing_is_shown_where_the_reply_will_be(api: TelegramApi) -> None:
    out = replies(api)
    async with out.composing(recipient("-1002345678901", "5")):
        await asyncio.to_thread(api.wait_for_calls, 1)
    await out.aclose()
    assert api.typed == [(-1002345678901, "typing")]
    assert api.calls[0].json == {"chat_id": -1002345678901, "message_thread_id": 5, "action": "typing"}
    assert TelegramReplies.typing_ms == 4_000


async def test_a_person_who_blocked_the_bot_is_given_up(api: TelegramApi) -> None:
    api.blocked.add(4711)
    with pytest.raises(GiveUp, match="403: Forbidden: bot was blocked by the user"):
        await send(api, recipient())


async def test_a_chat_that_is_gone_is_given_up(api: TelegramApi) -> None:
    with pytest.raises(GiveUp, match="400: Bad Request: chat not found"):
        await send(api, recipient("4712"))


async def test_a_group_that_moved_is_given_up_with_its_new_number(api: TelegramApi) -> None:
    api.next.append(refusal(400, "Bad Request: group chat was upgraded", migrate_to_chat_id=-1009))
    with pytest.raises(GiveUp, match="-1009"):
        await send(api, recipient())


async def test_a_reply_that_is_too_long_is_given_up(api: TelegramApi) -> None:
    out = replies(api)
    with pytest.raises(GiveUp, match="message is too long"):
        await out.send(recipient(), 0, "x" * 4097)
    await out.send(recipient(), 0, "👋" * 2048)
    await out.aclose()


@pytest.mark.parametrize("said", [refusal(401, "Unauthorized"), refusal(404, "Not Found")])
async def test_a_wrong_token_is_given_up_without_showing_it(
    api: TelegramApi, said: FakeAnswer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "turntake")
    api.next.append(said)
    with pytest.raises(GiveUp, match="TURNTAKE_TELEGRAM_BOT_TOKEN") as error:
        await send(api, recipient(), bot_token="1:wrong-secret")
    assert "wrong-secret" not in str(error.value) + caplog.text


async def test_a_token_cannot_lead_elsewhere(api: TelegramApi) -> None:
    """Whatever was pasted, it is one part of the path."""
    with pytest.raises(GiveUp):
        await send(api, recipient(), bot_token="1:a/../../x?y#z")
    assert api.calls[0].path == "/bot1:a%2F..%2F..%2Fx%3Fy%23z/sendMessage"


@pytest.mark.parametrize(
    ("said", "after_ms"),
    [
        (refusal(429, "Too Many Requests: retry after 14", retry_after=14), 14_000),
        (refusal(429, "Too Many Requests", retry_after=0), 500),
        (refusal(429, "Too Many Requests", retry_after=10**9), 3_600_000),
        (refusal(429, "Too Many Requests"), 5_000),
        (FakeAnswer(429, b"slow down"), 5_000),
    ],
)
async def test_a_throttled_reply_is_sent_when_telegram_says(api: TelegramApi, said: FakeAnswer, after_ms: int) -> None:
    api.next.append(said)
    with pytest.raises(RetryLater) as error:
        await send(api, recipient())
    assert error.value.after_ms == after_ms
    await send(api, recipient())
    assert len(api.sent) == 1


@pytest.mark.parametrize(
    "said",
    [
        refusal(500, "Internal Server Error"),
        FakeAnswer(502, b"<html>"),
        FakeAnswer(200, b"<html>hotel wifi</html>"),
        FakeAnswer(200, {"ok": False}),
        FakeAnswer(200, {"ok": True, "result": True}),
        FakeAnswer(500, {"ok": False, "error_code": "odd", "description": ["x"], "parameters": "y"}),
    ],
)
async def test_a_failure_that_may_pass_is_tried_again(api: TelegramApi, said: FakeAnswer) -> None:
    api.next.append(said)
    with pytest.raises(SendFailed, match="Telegram answered") as error:
        await send(api, recipient())
    assert TOKEN not in str(error.value)


def test_the_receipt_is_the_messages_id() -> None:
    body = b'{"ok": true, "result": {"message_id": 1001}}'
    assert TelegramReplies({}).check(ApiResponse(200, {}, body)) == "1001"


def test_a_reply_quotes_a_message_that_is_one(api: TelegramApi) -> None:
    sender = TelegramReplies(api.options)
    calls = [sender.reply_call(replace(recipient(), reply_to=id), "hi", "turn_1-0") for id in ("34", "postback:7", "")]
    quoted = {"message_id": 34, "allow_sending_without_reply": True}
    assert [json.loads(call.body).get("reply_parameters") for call in calls] == [quoted, None, None]


def test_in_the_direct_messages_of_a_channel_no_typing_is_shown(api: TelegramApi) -> None:
    """Telegram has no such sign there."""
    writer = TelegramReplies(api.options)
    assert writer.typing_call(recipient("-1005", "direct-4711")) is None
    assert writer.typing_call(recipient("-1005", "4711")) is not None
