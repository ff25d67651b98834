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
from turntake.platforms.channel import Request
from turntake.platforms.twilio.webhooks import Twilio, urls_of
from turntake.testing.channel_contract import ChannelContract
from turntake.testing.recording import recordings_in

URL = "https://turntake.test/webhooks/twilio"
FORM = {"content-type": "application/x-www-form-urlencoded"}


class TestTwilio(ChannelContract):
    channel = Twilio
    recordings = recordings_in(Path(__file__).parents[2] / "recordings" / "twilio")
    proof = ("x-twilio-signature",)


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


def test_a_retried_request_without_an_id_is_known_by_its_token() -> None:
    headers = {**FORM, "i-twilio-idempotency-token": "e9d4"}
    (event,) = channel().read(Request("POST", URL, headers, b"From=%2B1&Body=hi")).events
    assert (event.kind, event.message_id) == ("message", "e9d4")


@pytest.mark.parametrize("body", ["", "Body=hi", "From=%2B1", "CallSid=CA1&From=%2B1", "MessageSid=SM1"])
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
    fields = {"MessageSid": "MM1", "From": "+1", "MediaUrl0": "https://m.test/0", "MediaContentType0": content_type}
    (event,) = channel().read(Request("POST", URL, FORM, urlencode(fields).encode())).events
    assert [attachment.kind for attachment in event.attachments] == [kind]


def test_attachments_keep_their_order_whatever_is_said_of_their_number() -> None:
    fields = {"MessageSid": "MM1", "From": "+1", "NumMedia": "no"}
    fields |= {f"MediaUrl{number}": f"https://m.test/{number}" for number in (10, 9, 0)} | {"MediaUrl1": ""}
    (event,) = channel().read(Request("POST", URL, FORM, urlencode(fields).encode())).events
    assert [attachment.url for attachment in event.attachments] == [f"https://m.test/{n}" for n in (0, 9, 10)]


@pytest.mark.parametrize("latitude", ["", "north", "NaN", "inf"])
def test_a_location_without_coordinates_is_left_out(latitude: str) -> None:
    fields = {"MessageSid": "SM1", "From": "+1", "Body": "hi", "Latitude": latitude, "Longitude": "6.9"}
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
