"""Answers that leave for Slack: where they go, how they are written, and what Slack's refusals come to."""

import asyncio
from collections.abc import Iterator

import pytest

from harness.platforms.sending import send_and_close
from harness.platforms.server import FakeAnswer
from harness.platforms.slack import TOKEN, SlackApi, no
from turntake import ConversationKey, GiveUp, RetryLater
from turntake.deliver.replies import Replies
from turntake.errors import SendFailed
from turntake.platforms.replies import Recipient
from turntake.platforms.slack.replies import SlackReplies
from turntake.rules.message import Message


@pytest.fixture
def api() -> Iterator[SlackApi]:
    with SlackApi("C1", "D1") as api:
        yield api


def to(channel: str = "C1", topic: str = "") -> Recipient:
    key = ConversationKey.of(channel, channel="slack", account="T1", topic=topic)
    return Recipient(key, "turn_1", (Message("1790000000.000100", "hi"),))


def sender(api: SlackApi, token: str = TOKEN) -> SlackReplies:
    return SlackReplies({"bot_token": token, "api_base": f"{api.url}/"})


async def send(api: SlackApi, text: str, recipient: Recipient | None = None, token: str = TOKEN) -> None:
    await send_and_close(Replies({("slack", ""): sender(api, token)}), recipient or to(), text)


async def test_an_answer_goes_to_the_channel_and_says_which_reply_it_is(api: SlackApi) -> None:
    await send(api, "hello")
    (post,) = api.posts
    assert (post["channel"], post["text"]) == ("C1", "hello")
    assert "thread_ts" not in post
    assert post["metadata"]["event_payload"] == {"reply_id": "turn_1-0"}


async def test_an_answer_to_a_thread_goes_into_the_thread(api: SlackApi) -> None:
    """Also where each person in it has a buffer."""
    await send(api, "hello", to(topic="1790000000.000100@U1"))
    assert api.posts[0]["thread_ts"] == "1790000000.000100"


async def test_what_a_model_writes_calls_nobody(api: SlackApi) -> None:
    """Signs with a meaning at Slack arrive as what they look like, entities too."""
    await send(api, "<!channel> <@U1> a < b && b > c &lt;")
    assert api.sent == [("C1", "&lt;!channel&gt; &lt;@U1&gt; a &lt; b &amp;&amp; b &gt; c &amp;lt;")]
    assert api.alarms == []


async def test_a_long_answer_is_cut_before_slack_does(api: SlackApi) -> None:
    """Also if it is a program, with a bracket in every line."""
    line = "if (a < b) { return list; }\n"
    await send(api, line * 400)
    assert len(api.posts) == len(api.sent) > 1
    assert "".join(text for _, text in api.sent).count("&lt;") == 400


async def test_even_the_worst_text_loses_nothing(api: SlackApi) -> None:
    """Slack sends it in several messages, but takes all of it."""
    await send(api, "&" * 3_000)
    assert len(api.posts) == 1
    assert "".join(text for _, text in api.sent) == "&amp;" * 3_000


async def test_throttling_says_when_to_come_again(api: SlackApi) -> None:
    api.burst = 1
    await send(api, "one")
    with pytest.raises(RetryLater, match="throttles") as refused:
        await send(api, "two")
    assert refused.value.after_ms == 1_000
    await send(api, "two")
    assert [text for _, text in api.sent] == ["one", "two"]


@pytest.mark.parametrize(
    ("said", "after_ms"),
    [
        (FakeAnswer(429, b"<html>", {"retry-after": "30"}), 30_000),
        (FakeAnswer(429, b""), 1_000),
        (FakeAnswer(429, b"", {"retry-after": "soon"}), 1_000),
        (FakeAnswer(200, {"ok": False, "error": "ratelimited"}, {"retry-after": "7"}), 7_000),
        (FakeAnswer(200, {"ok": False, "error": "rate_limited"}), 1_000),
    ],
)
async def test_throttling_in_every_form(api: SlackApi, said: FakeAnswer, after_ms: int) -> None:
    api.next.append(said)
    with pytest.raises(RetryLater) as refused:
        await send(api, "hello")
    assert refused.value.after_ms == after_ms


@pytest.mark.parametrize(
    "said",
    [
        no("internal_error"),
        no("fatal_error"),
        no("service_unavailable"),
        FakeAnswer(500, b"oops"),
        FakeAnswer(503, b""),
        FakeAnswer(200, b"oops"),
    ],
)
async def test_what_may_pass_is_tried_again(api: SlackApi, said: FakeAnswer) -> None:
    api.next.append(said)
    with pytest.raises(SendFailed):
        await send(api, "hello")
    assert api.sent == []


async def test_a_wrong_token_is_for_the_operator(api: SlackApi) -> None:
    with pytest.raises(GiveUp, match="invalid_auth; set TURNTAKE_SLACK_BOT_TOKEN"):
        await send(api, "hello", token="xoxb-old")


async def test_a_channel_without_the_bot_is_for_the_operator(api: SlackApi) -> None:
    with pytest.raises(GiveUp, match="channel_not_found; invite the bot"):
        await send(api, "hello", to("C2"))


async def test_an_archived_channel_takes_nothing(api: SlackApi) -> None:
    api.archived.add("C1")
    with pytest.raises(GiveUp, match="is_archived"):
        await send(api, "hello")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (no("not_in_channel"), "not_in_channel; invite the bot"),
        (no("account_inactive"), "account_inactive; install the app again"),
        (no("msg_too_long"), "msg_too_long"),
        (no("missing_scope", needed="chat:write"), r"missing_scope \(needs chat:write\); add the scope"),
        (no("word_of_next_year"), "word_of_next_year"),
        (FakeAnswer(404, b""), "404"),
    ],
)
async def test_a_refusal_is_in_slacks_own_words(api: SlackApi, said: FakeAnswer, words: str) -> None:
    api.next.append(said)
    with pytest.raises(GiveUp, match=words):
        await send(api, "hello")


def test_a_thread_shows_a_status_until_it_is_taken_back(api: SlackApi) -> None:
    slack, thread = sender(api), to(topic="1790000000.000100")
    typing, stopped = slack.typing_call(thread), slack.typing_stopped_call(thread)
    assert typing is not None
    assert stopped is not None
    assert typing.url == stopped.url == f"{api.url}/assistant.threads.setStatus"
    assert b'"status":"is typing' in typing.body
    assert b'"status":""' in stopped.body


async def test_the_status_is_one_that_slack_takes(api: SlackApi) -> None:
    out = Replies({("slack", ""): sender(api)})
    async with out.composing(to(topic="1790000000.000100")):
        await asyncio.to_thread(api.wait_for_calls, 1)
    assert api.statuses[0] == ("C1", "1790000000.000100", "is typing…")
    await asyncio.to_thread(api.wait_for_calls, 2)
    assert api.statuses[1] == ("C1", "1790000000.000100", "")
    await out.aclose()


def test_outside_threads_there_is_no_status(api: SlackApi) -> None:
    assert sender(api).typing_call(to()) is None
    assert sender(api).typing_stopped_call(to(topic="@U1")) is None
