"""Replies through Messenger: in what form, and what its refusals mean."""

from collections.abc import Iterator

import pytest

from harness.platforms.meta import TOKEN, MessengerApi, made, refused, said
from turntake import ConversationKey, GiveUp, RetryLater
from turntake.deliver.split import split
from turntake.errors import SendFailed
from turntake.platforms.messenger.replies import MessengerReplies
from turntake.platforms.messenger.webhooks import Messenger
from turntake.platforms.replies import Recipient
from turntake.rules.message import Message

PSID = "8200000000000001"
TO = Recipient(ConversationKey.of(PSID, channel="messenger", account="310"), "turn_1", (Message("m_1", "hi"),))


@pytest.fixture
def api() -> Iterator[MessengerApi]:
    with MessengerApi() as running:
        yield running


def sender(api: MessengerApi, token: str = TOKEN) -> MessengerReplies:
    defaults = {option.name: option.default for option in Messenger.options}
    return MessengerReplies({**defaults, "access_token": token, "api_base": api.url})


def test_a_reply_is_a_response_to_the_person(api: MessengerApi) -> None:
    writer = sender(api)
    assert writer.check(made(writer.reply_call(TO, "Grüße 😀", "r"))) == "m_out1"
    assert api.sent == [(PSID, "Grüße 😀")]
    assert api.calls[0].path == "/me/messages"
    assert api.calls[0].json == {
        "recipient": {"id": PSID},
        "messaging_type": "RESPONSE",
        "message": {"text": "Grüße 😀"},
    }


def test_long_replies_are_taken_in_their_parts(api: MessengerApi) -> None:
    writer = sender(api)
    for part in split("😀" * 2_500, writer.longest, writer.unit):
        writer.check(made(writer.reply_call(TO, part, "r")))
    assert "".join(text for _, text in api.sent) == "😀" * 2_500
    with pytest.raises(GiveUp, match="2000"):
        writer.check(made(writer.reply_call(TO, "x" * 2_001, "r")))


def test_typing_is_shown_and_taken_back_in_calls_of_its_own(api: MessengerApi) -> None:
    writer = sender(api)
    for call in (writer.typing_call(TO), writer.typing_stopped_call(TO)):
        assert call is not None
        assert made(call).status == 200
    assert api.signs == [(PSID, "typing_on"), (PSID, "typing_off")]
    assert (api.sent, writer.typing_ms) == ([], 15_000)


def test_a_token_that_is_quoted_back_is_not_passed_on(api: MessengerApi) -> None:
    """Errors are kept with the turn, and whoever may read turns may not read secrets."""
    with pytest.raises(GiveUp, match="Malformed access token … ") as refusal:
        sender(api).check(said(refused(190, f"Malformed access token {TOKEN}").body, 400))
    assert TOKEN not in str(refusal.value)


def test_a_closed_window_is_final_and_says_so(api: MessengerApi) -> None:
    api.closed.add(PSID)
    writer = sender(api)
    with pytest.raises(GiveUp, match=r"code 10/2018278.*more than 24 hours old"):
        writer.check(made(writer.reply_call(TO, "hi", "r")))


def test_an_unknown_recipient_is_given_up(api: MessengerApi) -> None:
    api.unknown.add(PSID)
    writer = sender(api)
    with pytest.raises(GiveUp, match="No matching user found"):
        writer.check(made(writer.reply_call(TO, "hi", "r")))


def test_an_expired_token_names_the_variable(api: MessengerApi) -> None:
    writer = sender(api, "expired")
    with pytest.raises(GiveUp, match="TURNTAKE_MESSENGER_ACCESS_TOKEN"):
        writer.check(made(writer.reply_call(TO, "hi", "r")))


def test_a_missing_permission_says_where_to_look() -> None:
    with MessengerApi() as api, pytest.raises(GiveUp, match="permissions"):
        sender(api).check(said(refused(200, "(#200) Requires pages_messaging").body, 403))


@pytest.mark.parametrize("code", [4, 32, 613, 80006])
def test_throttling_is_waited_out(api: MessengerApi, code: int) -> None:
    with pytest.raises(RetryLater) as later:
        sender(api).check(said(refused(code, "Calls to this api have exceeded the rate limit.").body, 400))
    assert later.value.after_ms == 60_000


@pytest.mark.parametrize("body", [{}, {"message_id": 7}, {"recipient_id": PSID}, []])
def test_a_success_without_a_message_id_is_a_failure(api: MessengerApi, body: object) -> None:
    with pytest.raises(SendFailed):
        sender(api).check(said(body))


def test_a_temporary_failure_is_tried_again(api: MessengerApi) -> None:
    with pytest.raises(SendFailed, match="1200"):
        sender(api).check(said(refused(1200, "Temporary send message failure.").body, 400))
