"""Replies through WhatsApp: to whom, in what form, and what its refusals mean."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from harness.platforms.meta import TOKEN, WhatsAppApi, made, refused, said
from harness.platforms.server import FakeAnswer
from turntake import ConversationKey, GiveUp, RetryLater
from turntake.deliver.split import split
from turntake.errors import SendFailed
from turntake.platforms.replies import Recipient
from turntake.platforms.whatsapp.replies import WhatsAppReplies
from turntake.platforms.whatsapp.webhooks import WhatsApp
from turntake.rules.message import Message

ANA, NUMBER = "4915550100001", "109"


@pytest.fixture
def api() -> Iterator[WhatsAppApi]:
    with WhatsAppApi() as running:
        yield running


def sender(api: WhatsAppApi, **options: str) -> WhatsAppReplies:
    defaults = {option.name: option.default for option in WhatsApp.options}
    return WhatsAppReplies({**defaults, "access_token": TOKEN, "api_base": api.url + "/", **options})


def to(chat: str = ANA, account: str = NUMBER, *messages: Message) -> Recipient:
    key = ConversationKey.of(chat, channel="whatsapp", account=account)
    return Recipient(key, "turn_1", messages or (Message("wamid.1", "hi"), Message("wamid.2", "there")))


def test_a_reply_reaches_the_person_from_the_number_they_wrote_to(api: WhatsAppApi) -> None:
    writer = sender(api, phone_number_id="999")
    assert writer.check(made(writer.reply_call(to(), "Grüße 😀", "turn_1-0"))) == "wamid.OUT1"
    assert api.sent == [(ANA, "Grüße 😀")]
    assert api.calls[0].path == f"/{NUMBER}/messages"
    assert api.calls[0].json == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": ANA,
        "type": "text",
        "text": {"body": "Grüße 😀", "preview_url": False},
        "biz_opaque_callback_data": "turn_1-0",
    }


def test_the_token_is_in_a_header_and_nowhere_else(api: WhatsAppApi) -> None:
    call = sender(api, access_token=f" {TOKEN} ,older").reply_call(to(), "hi", "r")
    assert call.headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in call.url + call.body.decode()


def test_the_configured_number_answers_where_the_webhook_named_none(api: WhatsAppApi) -> None:
    assert sender(api, phone_number_id="999").reply_call(to(account=""), "hi", "r").url.endswith("/999/messages")
    with pytest.raises(GiveUp, match="TURNTAKE_WHATSAPP_PHONE_NUMBER_ID"):
        sender(api).reply_call(to(account=""), "hi", "r")


def test_an_account_of_several_still_answers_from_its_own_number(api: WhatsAppApi) -> None:
    assert sender(api).reply_call(to(account=f"sales/{NUMBER}"), "hi", "r").url == f"{api.url}/{NUMBER}/messages"


@pytest.mark.parametrize("account", ["..", ".", "1?x=..", "1/../2", "1#"])
def test_an_id_cannot_lead_the_token_elsewhere(api: WhatsAppApi, account: str) -> None:
    with pytest.raises(GiveUp, match="The phone number ID"):
        sender(api).reply_call(to(account=f"sales/{account}"), "hi", "r")


@pytest.mark.parametrize("chat", ["DE.13491208655302741918", "US.ENT.11815799212886844830"])
def test_somebody_without_a_number_is_a_recipient(api: WhatsAppApi, chat: str) -> None:
    body = json.loads(sender(api).reply_call(to(chat), "hi", "r").body)
    assert (body["recipient"], body.get("to")) == (chat, None)


@pytest.mark.parametrize("chat", [ANA, "DE.", "de.1", "DE.1 2", "X.1"])
def test_a_chat_that_is_not_a_user_id_is_a_phone_number(api: WhatsAppApi, chat: str) -> None:
    body = json.loads(sender(api).reply_call(to(chat), "hi", "r").body)
    assert (body["to"], body.get("recipient")) == (chat, None)


def test_a_group_is_answered_in_the_group(api: WhatsAppApi) -> None:
    heard = Message("wamid.1", "hi all", metadata={"groupId": "G-5"})
    body = json.loads(sender(api).reply_call(to("G-5", NUMBER, heard), "hi", "r").body)
    assert (body["to"], body["recipient_type"]) == ("G-5", "group")


def test_the_longest_reply_is_taken_and_no_longer_one_is_sent(api: WhatsAppApi) -> None:
    writer = sender(api)
    for part in split("😀" * 5_000, writer.longest, writer.unit):
        writer.check(made(writer.reply_call(to(), part, "r")))
    assert "".join(text for _, text in api.sent) == "😀" * 5_000
    with pytest.raises(GiveUp, match="4096"):
        writer.check(made(writer.reply_call(to(), "x" * 4_097, "r")))


def test_typing_is_shown_under_the_latest_message_and_marks_it_read(api: WhatsAppApi) -> None:
    call = sender(api).typing_call(to(ANA, NUMBER, Message("wamid.1"), Message("wamid.2"), Message("edit:1:2")))
    assert call is not None
    assert made(call).status == 200
    assert api.read == ["wamid.2"]
    assert api.sent == []


def test_typing_needs_a_message_that_whatsapp_knows_and_a_number(api: WhatsAppApi) -> None:
    assert sender(api).typing_call(to(ANA, NUMBER, Message("1f3c"))) is None
    assert sender(api).typing_call(to(account="")) is None
    assert sender(api).typing_stopped_call(to()) is None


def test_the_pair_rate_is_waited_for(api: WhatsAppApi) -> None:
    api.burst = 1
    writer = sender(api)
    writer.check(made(writer.reply_call(to(), "one", "r")))
    with pytest.raises(RetryLater, match="131056") as later:
        writer.check(made(writer.reply_call(to(), "two", "r")))
    assert later.value.after_ms == 6_000


def test_a_closed_window_is_final_and_says_so(api: WhatsAppApi) -> None:
    api.closed.add(ANA)
    writer = sender(api)
    with pytest.raises(GiveUp) as final:
        writer.check(made(writer.reply_call(to(), "hi", "r")))
    assert str(final.value) == (
        "WhatsApp answered 400: Re-engagement message: More than 24 hours have passed. "
        "(code 131047, trace Az8or2yhqkZfEZ-_4Qn_Bam). "
        "The person's last message is more than 24 hours old: only they can open the chat again."
    )


def test_an_expired_token_is_final_and_names_the_variable(api: WhatsAppApi) -> None:
    writer = sender(api, access_token="expired")
    with pytest.raises(GiveUp, match="TURNTAKE_WHATSAPP_ACCESS_TOKEN") as final:
        writer.check(made(writer.reply_call(to(), "hi", "r")))
    assert "expired" not in str(final.value).replace("has expired", "")


@pytest.mark.parametrize(
    ("code", "after_ms"),
    [(4, 60_000), (80007, 60_000), (130429, 5_000), (131048, 600_000), (131056, 6_000), (131057, 60_000)],
)
def test_throttling_is_waited_out(api: WhatsAppApi, code: int, after_ms: int) -> None:
    """As long as is usual for the code, or as long as Meta says."""
    api.next += [refused(code, "Too many"), FakeAnswer(429, refused(code, "Too many").body, {"Retry-After": "17"})]
    writer = sender(api)
    for expected in (after_ms, 17_000):
        with pytest.raises(RetryLater, match=f"Too many .code {code}") as later:
            writer.check(made(writer.reply_call(to(), "hi", "r")))
        assert later.value.after_ms == expected


@pytest.mark.parametrize(
    ("retry_after", "after_ms"),
    [("0", 500), ("999999", 3_600_000), ("Wed, 21 Oct", 5_000), ("", 5_000), ("-1", 5_000)],
)
def test_a_bare_429_is_waited_out(api: WhatsAppApi, retry_after: str, after_ms: int) -> None:
    """Within reason."""
    with pytest.raises(RetryLater) as later:
        sender(api).check(said(b"slow down", 429, retry_after=retry_after))
    assert later.value.after_ms == after_ms


def test_a_429_is_waited_out_whatever_its_code(api: WhatsAppApi) -> None:
    with pytest.raises(RetryLater, match="Brand new") as later:
        sender(api).check(said(refused(987654, "Brand new").body, 429))
    assert later.value.after_ms == 5_000


@pytest.mark.parametrize("code", [0, 10, 100, 190, 200, 299, 131026, 131030, 131047, 131049, 131051, 133010])
def test_what_will_never_be_taken_is_given_up(api: WhatsAppApi, code: int) -> None:
    with pytest.raises(GiveUp, match=f"code {code}"):
        sender(api).check(said(refused(code, "No").body, 400))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (refused(1, "An unknown error").body, 400),
        (refused(2, "Service temporarily unavailable").body, 400),
        (refused(131000, "Something went wrong").body, 500),
        (refused(131053, "Media upload error").body, 400),
        (refused(131026, "Undeliverable").body, 503),
        (refused(100, "For now", is_transient=True).body, 400),
        (refused(987654, "Brand new").body, 400),
        ({"error": {"message": ["?"], "code": True, "error_subcode": "x", "error_data": 7}}, 400),
        ({"error": "odd"}, 400),
        (b"<html>Bad gateway</html>", 502),
        (b"", 500),
        (b"", 404),
        ({}, 200),
        ({"messages": []}, 200),
        ({"messages": [{"id": 7}]}, 200),
        ({"messages": {"id": "wamid.1"}}, 200),
        (b"[" * 100_000, 200),
        ({"messages": [{"id": "wamid.1"}], "error": {"message": "after all", "code": 1}}, 200),
    ],
)
def test_what_may_go_better_next_time_is_a_failure(api: WhatsAppApi, body: Any, status: int) -> None:
    """Also a 200 that does not say what it took: a double is seen, a lost answer is not."""
    with pytest.raises(SendFailed, match=f"WhatsApp answered {status}"):
        sender(api).check(said(body, status))


def test_an_error_of_metas_is_shortened_to_one_line(api: WhatsAppApi) -> None:
    with pytest.raises(GiveUp) as final:
        sender(api).check(said(refused(100, "long\n" * 500).body, 400))
    assert len(str(final.value)) < 500
    assert "\n" not in str(final.value)


def test_a_reply_quotes_what_whatsapp_knows(api: WhatsAppApi) -> None:
    quoting = [replace(to(), reply_to=id) for id in ("wamid.A1", "postback:7", "")]
    bodies = [json.loads(sender(api).reply_call(each, "hi", "turn_1-0").body) for each in quoting]
    assert [body.get("context") for body in bodies] == [{"message_id": "wamid.A1"}, None, None]
