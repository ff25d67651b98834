"""Replies through Twilio, against an API that refuses what Twilio refuses."""

import asyncio
from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest

from harness.platforms.sending import send_and_close
from harness.platforms.server import FakeAnswer
from harness.platforms.twilio import ACCOUNT, TYPING, TwilioApi, refusal
from turntake import ConversationKey, GiveUp, RetryLater
from turntake.deliver.options import ReplyOptions
from turntake.deliver.replies import Replies
from turntake.errors import SendFailed
from turntake.platforms.replies import ApiResponse, Recipient
from turntake.platforms.twilio.replies import TwilioReplies
from turntake.rules.message import Message

PERSON, OURS = "+4915112345678", "+15005550006"
HEARD = Message("SM00000000000000000000000000000001", "hi")


@pytest.fixture
def api() -> Iterator[TwilioApi]:
    with TwilioApi() as api:
        yield api


def recipient(person: str = PERSON, ours: str = OURS, heard: Message = HEARD) -> Recipient:
    return Recipient(ConversationKey.of(person, channel="twilio", account=ours), "turn_1", (heard,))


def replies(api: TwilioApi, **options: str) -> Replies:
    return Replies({("twilio", ""): TwilioReplies({**api.options, **options})}, options=ReplyOptions(timeout_ms=5_000))


async def send(api: TwilioApi, to: Recipient, text: str = "hello", **options: str) -> None:
    await send_and_close(replies(api, **options), to, text)


async def test_a_reply_goes_to_the_person_from_the_number_they_wrote_to(api: TwilioApi) -> None:
    await send(api, recipient(), "Grüße & mehr = 100 % 👋")
    assert api.sent == [(PERSON, "Grüße & mehr = 100 % 👋")]
    assert api.calls[0].form["From"] == [OURS]
    assert api.calls[0].path == f"/Accounts/{ACCOUNT}/Messages.json"


async def test_a_long_reply_arrives_in_parts_and_in_order(api: TwilioApi) -> None:
    """Twilio takes 1600 characters, also where each is two of UTF-16."""
    words = " ".join(f"👋word{number}" for number in range(700))
    await send(api, recipient(), words)
    assert len(api.sent) > 1
    assert " ".join(text.strip() for _, text in api.sent) == words


def test_twilio_is_told_where_to_report_what_becomes_of_a_reply(api: TwilioApi) -> None:
    """By an address that names the reply; without a public address there is nowhere to report to."""
    writer = TwilioReplies(api.options)
    assert b"StatusCallback" not in writer.reply_call(recipient(), "hi", "turn_1-0").body
    writer.webhook_url = "https://bot.example/webhooks/twilio/sales"
    form = parse_qs(writer.reply_call(recipient(), "hi", "turn_1-0").body.decode())
    assert form["StatusCallback"] == ["https://bot.example/webhooks/twilio/sales?reply=turn_1-0"]


@pytest.mark.parametrize(
    ("person", "ours", "configured", "expected"),
    [
        (PERSON, "", "+1999", {"From": ["+1999"]}),
        (PERSON, OURS, "+1999", {"From": [OURS]}),
        (f"whatsapp:{PERSON}", f"whatsapp:{OURS}", "", {"From": [f"whatsapp:{OURS}"]}),
        (f"whatsapp:{PERSON}", "", "+1999", {"From": ["whatsapp:+1999"]}),
        (PERSON, "", "whatsapp:+1999", {"From": ["+1999"]}),
        (PERSON, "", "MG123", {"MessagingServiceSid": ["MG123"]}),
    ],
)
async def test_who_replies(
    api: TwilioApi, person: str, ours: str, configured: str, expected: dict[str, list[str]]
) -> None:
    """The number that was written to, else the configured one, in the spelling of the person's channel."""
    await send(api, recipient(person, ours), from_number=configured)
    form = api.calls[0].form
    assert {name: form[name] for name in form if name not in ("To", "Body")} == expected
    assert api.sent == [(person, "hello")]


async def test_without_a_number_to_send_from_there_is_no_way(api: TwilioApi) -> None:
    with pytest.raises(GiveUp, match="TURNTAKE_TWILIO_FROM_NUMBER"):
        await send(api, recipient(ours=""))
    assert api.calls == []


async def test_the_first_of_two_tokens_is_sent_with(api: TwilioApi) -> None:
    await send(api, recipient(), auth_token=f"{api.options['auth_token']}, old")
    assert len(api.sent) == 1


@pytest.mark.parametrize(
    ("state", "code", "advice"),
    [
        ("opted_out", "21610", "unsubscribed recipient.*START"),
        ("closed", "63016", "outside the allowed window.*24 hours"),
    ],
)
async def test_a_person_who_cannot_be_reached_is_given_up(api: TwilioApi, state: str, code: str, advice: str) -> None:
    """In Twilio's words and ours."""
    getattr(api, state).add(PERSON)
    with pytest.raises(GiveUp, match=f"error {code}.*{advice}"):
        await send(api, recipient())


async def test_wrong_credentials_are_given_up_without_showing_them(api: TwilioApi) -> None:
    with pytest.raises(GiveUp, match="TURNTAKE_TWILIO_AUTH_TOKEN") as error:
        await send(api, recipient(), auth_token="wrong-secret")
    assert "wrong-secret" not in str(error.value)


async def test_a_reply_that_is_too_long_is_given_up(api: TwilioApi) -> None:
    out = replies(api)
    with pytest.raises(GiveUp, match="21617"):
        await out.send(recipient(), 0, "x" * 1601)
    await out.send(recipient(), 0, "x" * 1600)
    await out.aclose()


@pytest.mark.parametrize(
    ("said", "after_ms"),
    [
        (refusal(429, 20429, "Too many requests", retry_after="7"), 7_000),
        (refusal(429, 20429, "Too many requests"), 5_000),
        (refusal(429, 20429, "Too many requests", retry_after="soon"), 5_000),
        (refusal(429, 20429, "Too many requests", retry_after="9" * 9), 3_600_000),
        (refusal(400, 63018, "Rate limit exceeded for channel"), 5_000),
        (refusal(400, 21611, "Queue is full"), 5_000),
    ],
)
async def test_a_throttled_reply_is_sent_later(api: TwilioApi, said: FakeAnswer, after_ms: int) -> None:
    api.next.append(said)
    with pytest.raises(RetryLater) as error:
        await send(api, recipient())
    assert error.value.after_ms == after_ms
    await send(api, recipient())
    assert len(api.sent) == 1


@pytest.mark.parametrize(
    "said",
    [
        refusal(500, 20500, "Internal error"),
        FakeAnswer(503, b"<html>"),
        FakeAnswer(408, b""),
        FakeAnswer(302, b""),
        FakeAnswer(200, b"<html>hotel wifi</html>"),
        FakeAnswer(201, {"no": "sid"}),
        FakeAnswer(502, {"code": ["odd"], "message": {"a": 1}}),
    ],
)
async def test_a_failure_that_may_pass_is_tried_again(api: TwilioApi, said: FakeAnswer) -> None:
    api.next.append(said)
    with pytest.raises(SendFailed, match="Twilio answered"):
        await send(api, recipient())


async def test_typing_is_shown_on_whatsapp_alone(api: TwilioApi) -> None:
    """By the id of the last message, which it marks as read."""
    out = replies(api)
    async with out.composing(recipient(f"whatsapp:{PERSON}", f"whatsapp:{OURS}")):
        await asyncio.to_thread(api.wait_for_calls, 1)
    async with out.composing(recipient()):
        pass
    await out.aclose()
    assert api.typed == [HEARD.id]
    assert [call.path for call in api.calls] == [TYPING]


def test_typing_needs_a_message_of_twilios() -> None:
    sender = TwilioReplies({"account_sid": "AC1", "auth_token": "t", "typing_url": "https://t.test"})
    assert sender.typing_call(recipient(f"whatsapp:{PERSON}", heard=Message("digest"))) is None
    assert sender.typing_call(Recipient(ConversationKey.of("whatsapp:+1"), "turn_1", ())) is None
    assert sender.typing_ms == 20_000


def test_the_receipt_is_twilios_id() -> None:
    assert TwilioReplies({}).check(ApiResponse(201, {}, b'{"sid": "SM1", "status": "queued"}')) == "SM1"
