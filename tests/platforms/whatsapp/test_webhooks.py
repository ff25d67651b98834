"""WhatsApp's webhooks: who is believed, and what they say."""

import json
from typing import Any

import pytest

from harness.platforms.meta import recorded, strictly
from turntake import ConfigurationError
from turntake.errors import Forged, Unreadable
from turntake.platforms.channel import ChatEvent, Request
from turntake.platforms.meta.webhooks import signature
from turntake.platforms.whatsapp.webhooks import WhatsApp
from turntake.testing.recording import Recording

NOW = 1_790_000_000_000
URL = "https://bot.example/webhooks/whatsapp"
CHANNEL = WhatsApp({"app_secret": "old, new", "verify_token": "ours"})


@pytest.mark.parametrize("recording", recorded("whatsapp"), ids=lambda recording: recording.name)
def test_a_recording_says_this_and_no_more(recording: Recording) -> None:
    """Every field of every event is as recorded; what is not mentioned is not there."""
    assert WhatsApp(recording.options).read(recording.request).events == strictly(recording)


def posted(body: bytes, **headers: str) -> Request:
    return Request("POST", URL, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def signed(body: bytes, key: str = "old") -> Request:
    return posted(body, x_hub_signature_256=signature(key.encode(), body).decode())


def asked(query: str) -> Request:
    return Request("GET", f"{URL}?{query}")


def read(message: Any, **value: Any) -> tuple[ChatEvent, ...]:
    """The events of a webhook that holds this message."""
    change = {"field": "messages", "value": {"metadata": {"phone_number_id": "1"}, "messages": [message], **value}}
    whole = {"object": "whatsapp_business_account", "entry": [{"id": "2", "changes": [change]}]}
    return CHANNEL.read(posted(json.dumps(whole).encode())).events


def text(**parts: Any) -> dict[str, Any]:
    return {"from": "49", "id": "wamid.1", "timestamp": "1790000000", "type": "text", "text": {"body": "hi"}} | parts


@pytest.mark.parametrize("key", ["old", "new"])
def test_both_secrets_are_accepted_during_a_rotation(key: str) -> None:
    CHANNEL.verify(signed(b"{}", key), NOW)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x_hub_signature_256": ""},
        {"x_hub_signature_256": "sha256="},
        {"x_hub_signature_256": signature(b"old", b"{}").decode().removeprefix("sha256=")},
        {"x_hub_signature_256": signature(b"old", b"{}").decode().replace("sha256", "sha1")},
        {"x_hub_signature_256": signature(b"old", b"{}").decode().upper()},
        {"x_hub_signature_256": signature(b"old, new", b"{}").decode()},
        {"x_hub_signature_256": signature(b"", b"{}").decode()},
        {"x_hub_signature_256": "sha256=é\udcff"},
        {"x_hub_signature": signature(b"old", b"{}").decode()},
    ],
)
def test_a_signature_that_is_not_ours_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Forged, match="TURNTAKE_WHATSAPP_APP_SECRET") as refusal:
        CHANNEL.verify(posted(b"{}", **headers), NOW)
    assert refusal.value.status == 401


@pytest.mark.parametrize("unset", ["", " ", ","])
def test_without_a_secret_nothing_is_believed(unset: str) -> None:
    channel = WhatsApp({"app_secret": unset, "verify_token": unset})
    with pytest.raises(Forged, match="No app secret is set"):
        channel.verify(posted(b"{}", x_hub_signature_256=signature(unset.encode(), b"{}").decode()), NOW)
    with pytest.raises(Forged, match="No verify token is set") as refusal:
        channel.verify(asked(f"hub.mode=subscribe&hub.challenge=1&hub.verify_token={unset}"), NOW)
    assert refusal.value.status == 403


def test_the_handshake_gets_its_challenge_back_bare() -> None:
    request = asked("hub.mode=subscribe&hub.challenge=11582%2B01444&hub.verify_token=ours")
    CHANNEL.verify(request, NOW)
    answer = CHANNEL.read(request).answer
    assert (answer.status, answer.body, answer.content_type) == (200, b"11582+01444", "text/plain; charset=utf-8")
    assert CHANNEL.read(request).events == ()


@pytest.mark.parametrize(
    "query",
    [
        "",
        "hub.mode=subscribe&hub.challenge=1",
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=",
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=OURS",
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=ours%00",
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=%ff%c3%a9",
        "hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=ours",
        "hub.challenge=1&hub.verify_token=ours",
    ],
)
def test_any_other_handshake_is_refused(query: str) -> None:
    with pytest.raises(Forged) as refusal:
        CHANNEL.verify(asked(query), NOW)
    assert refusal.value.status == 403


def test_an_address_that_cannot_be_read_is_refused_like_any_other() -> None:
    with pytest.raises(Forged):
        CHANNEL.verify(Request("GET", "https://[?hub.mode=subscribe&hub.verify_token=ours"), NOW)


def test_an_api_base_that_is_no_address_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="TURNTAKE_WHATSAPP_API_BASE"):
        WhatsApp({"api_base": "graph.facebook.com/v25.0"})


NO_OBJECT = {
    "nothing": b"",
    "null": b"null",
    "list": b"[]",
    "text": b'"text"',
    "number": b"7",
    "half": b"{",
    "two": b"{} {}",
    "NaN": b'{"a":NaN}',
    "infinite": b'{"a":1e999}',
    "huge": b'{"a":1' + b"0" * 5_000 + b"}",
    "not UTF-8": b'{"a":"\xff"}',
    "NUL": b'{"a":"\x00"}',
    "deep": b'{"a":' * 100_000,
    "half a surrogate": b'{"\\udc00":',
    "byte order mark": b"\xef\xbb\xbf{}",
}


@pytest.mark.parametrize("body", NO_OBJECT.values(), ids=NO_OBJECT.keys())
def test_what_is_signed_but_no_object_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        CHANNEL.read(posted(body))


@pytest.mark.parametrize(
    "whole",
    [
        {},
        {"object": "page", "entry": [{"messaging": [{"sender": {"id": "1"}, "message": {"mid": "1"}}]}]},
        {"object": ["whatsapp_business_account"]},
        {"object": "whatsapp_business_account"},
        {"object": "whatsapp_business_account", "entry": {"0": 1}},
        {"object": "whatsapp_business_account", "entry": [None, 3, {"changes": "x"}, {"changes": [[], {"value": 7}]}]},
    ],
)
def test_a_webhook_for_another_product_or_without_entries_is_ignored(whole: Any) -> None:
    assert CHANNEL.read(posted(json.dumps(whole).encode())).events == ()


@pytest.mark.parametrize("held", [None, 3, "x", [], {}, [[]], {"body": None}, True])
@pytest.mark.parametrize(
    "kind",
    ["text", "image", "location", "contacts", "button", "interactive", "order", "reaction", "edit", "revoke", "system"],
)
def test_a_message_with_anything_inside_is_one_event(kind: str, held: Any) -> None:
    (event,) = read(text(type=kind) | {kind: held})
    assert event.id == "wamid.1"
    assert event.message_id


def test_an_edit_that_edits_edits_without_end_is_only_unsupported() -> None:
    """Nested nearly as deep as JSON may be, and too deep to follow."""
    opening, closing = b'{"type":"edit","edit":{"original_message_id":"wamid.0","message":', b"}}"
    nested = opening * 440 + b'{"type":"text","text":{"body":"x"}}' + closing * 440
    message = nested.replace(b"{", b'{"from":"49","id":"wamid.1",', 1)
    change = b'{"field":"messages","value":{"messages":[' + message + b"]}}"
    whole = b'{"object":"whatsapp_business_account","entry":[{"changes":[' + change + b"]}]}"
    assert [event.kind for event in CHANNEL.read(posted(whole)).events] == ["unsupported"]


def test_numbers_that_json_cannot_carry_on_are_left_out() -> None:
    (event,) = read(text(type="location", location={"latitude": 2**70, "longitude": True, "name": 2**70}))
    (place,) = event.attachments
    assert (place.metadata, place.name) == ({}, str(2**70))


def test_a_message_without_a_time_is_still_a_message() -> None:
    (event,) = read(text(timestamp=None))
    assert (event.kind, event.sent_at) == ("message", None)


def test_who_wrote_is_the_only_contact_if_the_message_does_not_say() -> None:
    alone = [{"profile": {"name": "Eve"}, "user_id": "DE.1"}]
    (event,) = read(text(**{"from": None}), contacts=alone)
    assert (event.kind, event.sender, event.metadata["profileName"]) == ("message", "DE.1", "Eve")


def test_nobody_gets_the_name_of_somebody_else() -> None:
    (event,) = read(text(), contacts=[{"profile": {"name": "Eve"}, "wa_id": "50"}])
    assert event.metadata == {}


def test_a_sample_comes_to_the_number_that_is_configured() -> None:
    channel = WhatsApp({"app_secret": "s", "verify_token": "t", "phone_number_id": "777"})
    sample = channel.sample("Grüße / 😀", sender="4915", id="wamid.7", url=URL, now=NOW + 999)
    channel.verify(sample, NOW)
    (event,) = channel.read(sample).events
    assert sample.body.isascii()
    assert rb"Gr\u00fc\u00dfe \/ " in sample.body
    assert (event.account, event.conversation, event.text, event.sent_at) == ("777", "4915", "Grüße / 😀", NOW)


def test_of_many_contacts_each_message_has_its_own() -> None:
    """By either id; of several with the same one the first, and nobody for a message that names none of them."""
    contacts = [
        {"profile": {"name": name}, "wa_id": wa_id, "user_id": user_id}
        for name, wa_id, user_id in [("Ada", "1", "US.1"), ("Ben", "2", "US.2"), ("Eve", "2", ""), ("", "", "")]
    ]
    ids: list[dict[str, Any]] = [
        {"from": "1"},
        {"from": "2"},
        {"from": None, "from_user_id": "US.2"},
        {"from": "3"},
        {"from": None},
    ]
    events = [event for each in ids for event in read(text(**each), contacts=contacts)]
    assert [event.metadata.get("profileName") for event in events] == ["Ada", "Ben", "Ben", None, None]


def test_a_secret_may_be_any_bytes_that_an_environment_holds() -> None:
    """Python reads a variable's byte that is no UTF-8 as half a surrogate pair."""
    channel = WhatsApp({"app_secret": "old, k\udcff"})
    channel.verify(posted(b"{}", x_hub_signature_256=signature(b"k\xff", b"{}").decode()), NOW)
