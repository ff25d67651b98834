"""Twilio's webhooks: who is believed, and what they say."""

import base64
import hashlib
import hmac
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from turntake.errors import Forged
from turntake.platforms.channel import ChatEvent, ReplyStatus, Request
from turntake.platforms.twilio.webhooks import Twilio, urls_of
from turntake.testing.channel_contract import ChannelContract
from turntake.testing.recording import recordings_in

URL = "https://turntake.test/webhooks/twilio"
FORM = {"content-type": "application/x-www-form-urlencoded"}
SID = "SM0123456789abcdef0123456789abcdef"
ACCOUNT = "AC" + "1" * 32


class TestTwilio(ChannelContract):
    channel = Twilio
    recordings = recordings_in(Path(__file__).parents[2] / "recordings" / "twilio")
    proof = ("x-twilio-signature",)
    sample_id = SID


def channel(token: str = "12345") -> Twilio:
    return Twilio({"auth_token": token})


def signed(signature: str, url: str, body: str = "", **headers: str) -> Request:
    return Request("POST", url, {**FORM, "x-twilio-signature": signature, **headers}, body.encode())


def signature_of(written: bytes) -> str:
    """By the definition, and not by what is tested."""
    return base64.b64encode(hmac.new(b"12345", written, hashlib.sha1).digest()).decode()


def is_believed(request: Request, token: str = "12345") -> bool:
    with suppress(Forged):
        channel(token).verify(request, 0)
        return True
    return False


def read(**fields: str) -> ChatEvent:
    (event,) = channel().read(Request("POST", URL, FORM, urlencode(fields).encode())).events
    return event


def sample(url: str = URL, text: str = "hi", token: str = "12345") -> Request:
    return channel(token).sample(text, sender="+4915112345678", id="SM1", url=url, now=0)


def test_the_example_of_twilios_documentation_is_believed() -> None:
    """The one signature here that we did not compute ourselves."""
    body = "CallSid=CA1234567890ABCDE&Caller=%2B12349013030&Digits=1234&From=%2B12349013030&To=%2B18005551212"
    request = signed("3KI2uRuYyAdhZIJXcpU0izDUzWI=", "https://mycompany.com/myapp", body)
    assert is_believed(request)
    assert not is_believed(request, "54321")


@pytest.mark.parametrize(
    ("configured", "called"),
    [
        (URL, "https://turntake.test:443/webhooks/twilio"),
        ("https://turntake.test:443/webhooks/twilio", URL),
        ("http://turntake.test/x?a=1", "http://turntake.test:80/x?a=1"),
        ("https://turntake.test:8443/x", "https://turntake.test/x"),
        ("https://user:pass@turntake.test/x", "https://user:pass@turntake.test:443/x"),
        ("https://[2001:db8::1]/x", "https://[2001:db8::1]:443/x"),
        (f"{URL}#rc=2&rp=all", URL),
    ],
)
def test_a_port_or_a_fragment_makes_no_difference(configured: str, called: str) -> None:
    """Twilio signs the port or leaves it out, and never signs what comes after #."""
    assert is_believed(replace(sample(called), url=configured))


@pytest.mark.parametrize(
    "other",
    [
        "http://turntake.test/webhooks/twilio",
        "https://turntake.test/webhooks/twilio/",
        "https://turntake.test/webhooks/twilio?x=1",
        "https://turntake.test:8443/webhooks/twilio",
        "https://user:pass@turntake.test/webhooks/twilio",
        "https://evil.test/webhooks/twilio",
    ],
)
def test_another_url_is_refused(other: str) -> None:
    """Also by a port that is neither the default nor left out on our side."""
    is_port = ":8443" in other
    assert is_believed(replace(sample(), url=other)) == is_port


def test_a_default_port_is_that_of_the_scheme() -> None:
    assert urls_of("https://a.test/") == ["https://a.test/", "https://a.test:443/"]
    assert urls_of("http://a.test") == ["http://a.test", "http://a.test:80"]
    assert urls_of("https://a.test:9/x:1") == ["https://a.test:9/x:1", "https://a.test/x:1"]
    assert urls_of("nonsense") == ["nonsense"]


def test_two_tokens_are_both_valid_during_a_rotation() -> None:
    request = sample(token="new")
    assert is_believed(request, "old, new")
    assert not is_believed(request, "old, newer")


def test_a_json_body_needs_its_hash_in_the_signed_url() -> None:
    """Else a signature of a bare URL would vouch for any body."""
    body = b'{"a": 1}'
    hashed = f"{URL}?bodySHA256={hashlib.sha256(body).hexdigest()}"
    for url, content, verdict in [
        (hashed, body, True),
        (hashed, b'{"a": 2}', False),
        (hashed, b"", False),
        (URL, body, False),
        (URL, b"", True),
    ]:
        signature = signature_of(url.encode())
        request = Request("POST", url, {"content-type": "application/json", "x-twilio-signature": signature}, content)
        assert is_believed(request) is verdict, (url, content)


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@given(st.lists(st.tuples(words, words), max_size=8))
def test_a_form_is_signed_by_its_sorted_keys(pairs: list[tuple[str, str]]) -> None:
    """Whatever the keys and values are, blank ones too; each different value of a key counts once."""
    body = urlencode(pairs)
    kept = sorted({(key.encode(), value.encode()) for key, value in pairs})
    signature = signature_of(URL.encode() + b"".join(key + value for key, value in kept))
    assert is_believed(signed(signature, URL, body))


def test_a_key_that_begins_another_comes_first() -> None:
    """Sorting the joined texts instead would put ReasonEnded=t before Reason=Z."""
    signature = signature_of(URL.encode() + b"ReasonZReasonEndedt")
    assert is_believed(signed(signature, URL, "ReasonEnded=t&Reason=Z"))


def test_a_body_that_is_no_utf8_is_checked_byte_by_byte() -> None:
    signature = signature_of(URL.encode() + b"Body\xff\xfe")
    request = replace(signed(signature, URL), body=b"Body=%FF\xfe")
    assert is_believed(request)
    assert not is_believed(replace(request, body=b"Body=%FF\xff"))
    assert channel().read(request).events[0].kind == "unsupported"


def test_a_refusal_is_no_challenge_to_log_in() -> None:
    """To a 401 some callers answer with credentials."""
    with pytest.raises(Forged) as refusal:
        channel("other").verify(sample(), 0)
    assert refusal.value.status == 401


def test_every_answer_is_an_empty_document() -> None:
    """Text would be sent to the person as a message."""
    answer = channel().read(sample()).answer
    assert (answer.status, answer.content_type) == (200, "text/xml")
    assert answer.body == b'<?xml version="1.0" encoding="UTF-8"?><Response/>'


@pytest.mark.parametrize(
    "moved",
    [
        {f"MessageSid{SID}": "", f"SmsSid{SID}": "", f"SmsMessageSid{SID}": "", "NumMedia": "0"},
        {"MessageSid": f"{SID}NumMedia0", "SmsMessageSid": SID, "SmsSid": SID},
        {"MessageSid": SID, "NumMedia": f"0SmsMessageSid{SID}SmsSid", f"{SID}": ""},
    ],
)
def test_a_webhook_that_was_caught_cannot_be_repeated_under_another_id(moved: dict[str, str]) -> None:
    """The signature has no borders between names and values, so moving them leaves it right; no header is signed."""
    caught = {"Body": "pay Bob", "From": "+1", "To": "+2"}
    first = {**caught, "MessageSid": SID, "NumMedia": "0", "SmsMessageSid": SID, "SmsSid": SID}
    signature = signature_of(URL.encode() + "".join(key + first[key] for key in sorted(first)).encode())
    for number in range(2):
        repeated = signed(signature, URL, urlencode(caught | moved), **{"i-twilio-idempotency-token": f"new-{number}"})
        if is_believed(repeated):
            (event,) = channel().read(repeated).events
            assert (event.kind, event.id) in (("unsupported", ""), ("message", SID))


def test_ids_that_contradict_each_other_are_none() -> None:
    assert read(From="+1", Body="hi", MessageSid=SID, SmsSid="SM" + "f" * 32).kind == "unsupported"
    assert read(From="+1", Body="hi", SmsSid=SID).id == SID


@pytest.mark.parametrize("given", [ACCOUNT, "AC" + "2" * 32, None])
def test_only_webhooks_of_our_own_account_are_believed(given: str | None) -> None:
    fields = {"MessageSid": SID, "From": "+1", "Body": "hi"} | ({"AccountSid": given} if given else {})
    right = signature_of(URL.encode() + "".join(key + fields[key] for key in sorted(fields)).encode())
    twilio = Twilio({"auth_token": "12345", "account_sid": ACCOUNT})
    if given == ACCOUNT:
        twilio.verify(signed(right, URL, urlencode(fields)), 0)
    else:
        with pytest.raises(Forged, match="TURNTAKE_TWILIO_ACCOUNT_SID"):
            twilio.verify(signed(right, URL, urlencode(fields)), 0)


@pytest.mark.parametrize(
    ("chosen", "text", "metadata"),
    [
        ({"ButtonText": "Yes", "ButtonPayload": "y"}, "Yes", {"buttonText": "Yes", "payload": "y"}),
        ({"ButtonPayload": "y"}, "y", {"payload": "y"}),
        ({"ListTitle": "Rome", "ListId": "r"}, "Rome", {"listTitle": "Rome", "payload": "r"}),
        ({"ListId": "r"}, "r", {"payload": "r"}),
        ({"InteractiveData": '{"day":"Fri"}'}, '{"day":"Fri"}', {"interactiveData": '{"day":"Fri"}'}),
    ],
)
def test_what_was_chosen_counts_as_said_where_the_body_is_empty(
    chosen: dict[str, str], text: str, metadata: dict[str, str]
) -> None:
    event = read(MessageSid=SID, From="whatsapp:+1", Body="", **chosen)
    assert (event.kind, event.text, event.metadata) == ("message", text, metadata)
    assert read(MessageSid=SID, From="whatsapp:+1", Body="typed", **chosen).text == "typed"


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        ("delivered", "", ReplyStatus("turn_1-0", "delivered")),
        ("read", "", ReplyStatus("turn_1-0", "read")),
        (
            "undelivered",
            "30003",
            ReplyStatus(
                "turn_1-0",
                "failed",
                "Twilio reports that the reply is undelivered, "
                "error 30003 (the phone is switched off or out of reach).",
            ),
        ),
        ("failed", "99", ReplyStatus("turn_1-0", "failed", "Twilio reports that the reply is failed, error 99.")),
        ("queued", "", None),
    ],
)
def test_a_report_says_which_reply_it_is_about(state: str, code: str, status: ReplyStatus | None) -> None:
    """The address that Twilio was given with the reply names it."""
    body = urlencode({"MessageSid": SID, "MessageStatus": state, "ErrorCode": code, "From": "+1", "To": "+2"}).encode()
    (event,) = channel().read(Request("POST", f"{URL}?reply=turn_1-0", FORM, body)).events
    assert (event.kind, event.reply) == ("status", status)


@pytest.mark.parametrize(
    "body",
    ["", "Body=hi", "From=%2B1", "CallSid=CA1&From=%2B1", f"MessageSid={SID}", "MessageSid=SM1&From=%2B1&Body=hi"],
)
def test_what_is_no_message_is_passed_over(body: str) -> None:
    (event,) = channel().read(Request("POST", URL, FORM, body.encode())).events
    assert event.kind == "unsupported"


@pytest.mark.parametrize("state", ["queued", "sending", "sent", "delivered", "undelivered", "failed", "read", "new"])
def test_what_became_of_our_message_is_no_message(state: str) -> None:
    """Also where only SmsStatus says so."""
    for name in ("MessageStatus", "SmsStatus"):
        body = urlencode({"MessageSid": "SM1", name: state, "From": "+1", "To": "+2", "Body": "hi"}).encode()
        (event,) = channel().read(Request("POST", URL, FORM, body)).events
        assert (event.kind, event.account, event.conversation) == ("status", "+1", "+2")
        assert event.metadata == {"status": state}


@pytest.mark.parametrize("text", ["x" * 64, "hello " * 20, "AAAA" * 15, "short", "Zm9v" * 14])
def test_what_is_no_base64_of_a_text_is_left_alone(text: str) -> None:
    """Too short, with blanks, or nothing readable in it."""
    (event,) = channel().read(sample(text=text)).events
    assert (event.text, event.metadata) == (text, {})


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("image/webp", "image"),
        ("audio/ogg; codecs=opus", "audio"),
        ("video/mp4", "video"),
        ("text/vcard", "contact"),
        ("text/x-vcard", "contact"),
        ("application/pdf", "document"),
        ("", "unknown"),
    ],
)
def test_the_kind_of_an_attachment_is_that_of_its_type(content_type: str, kind: str) -> None:
    fields = {"MessageSid": SID, "From": "+1", "MediaUrl0": "https://m.test/0", "MediaContentType0": content_type}
    (event,) = channel().read(Request("POST", URL, FORM, urlencode(fields).encode())).events
    assert [attachment.kind for attachment in event.attachments] == [kind]


def test_attachments_keep_their_order_whatever_is_said_of_their_number() -> None:
    fields = {"MessageSid": SID, "From": "+1", "NumMedia": "no"}
    fields |= {f"MediaUrl{number}": f"https://m.test/{number}" for number in (10, 9, 0)} | {"MediaUrl1": ""}
    (event,) = channel().read(Request("POST", URL, FORM, urlencode(fields).encode())).events
    assert [attachment.url for attachment in event.attachments] == [f"https://m.test/{n}" for n in (0, 9, 10)]


@pytest.mark.parametrize("latitude", ["", "north", "NaN", "inf"])
def test_a_location_without_coordinates_is_left_out(latitude: str) -> None:
    fields = {"MessageSid": SID, "From": "+1", "Body": "hi", "Latitude": latitude, "Longitude": "6.9"}
    (event,) = channel().read(Request("POST", URL, FORM, urlencode(fields).encode())).events
    assert (event.kind, event.attachments) == ("message", ())


def test_a_sample_on_whatsapp_comes_to_a_whatsapp_sender() -> None:
    twilio = Twilio({"auth_token": "12345", "from_number": "+15005550006"})
    request = twilio.sample("hi", sender="whatsapp:+4915112345678", id="SM1", url=URL, now=0)
    twilio.verify(request, 0)
    (event,) = twilio.read(request).events
    assert (event.account, event.conversation) == ("whatsapp:+15005550006", "whatsapp:+4915112345678")


@pytest.mark.parametrize("body", ["&" * 1_001, "Body=" + "x" * 262_144])
def test_a_form_that_twilio_would_not_send_is_not_even_read(body: str) -> None:
    """Only a form that was read can be verified, so strangers could keep us reading."""
    parts = sorted(parse_qsl(body, keep_blank_values=True))
    right = signature_of(URL.encode() + "".join(key + value for key, value in parts).encode())
    assert not is_believed(signed(right, URL, body))


def test_a_form_of_a_thousand_fields_is_read() -> None:
    fields = {f"f{number:03}": "v" for number in range(1_000)}
    right = signature_of(URL.encode() + "".join(key + value for key, value in fields.items()).encode())
    assert is_believed(signed(right, URL, urlencode(fields)))
