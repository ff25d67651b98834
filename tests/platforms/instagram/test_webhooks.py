"""Instagram's webhooks: what differs from Messenger's."""

import json
from typing import Any

import pytest

from harness.platforms.meta import recorded, strictly
from turntake.errors import Forged
from turntake.platforms.channel import SAID, Request
from turntake.platforms.instagram.webhooks import Instagram
from turntake.testing.recording import Recording

NOW = 1_790_000_000_250
URL = "https://bot.example/webhooks/instagram"
CHANNEL = Instagram({"app_secret": "s", "verify_token": "t"})


@pytest.mark.parametrize("recording", recorded("instagram"), ids=lambda recording: recording.name)
def test_a_recording_says_this_and_no_more(recording: Recording) -> None:
    """Every field of every event is as recorded; what is not mentioned is not there."""
    assert Instagram(recording.options).read(recording.request).events == strictly(recording)


def test_an_echo_of_ours_is_not_said_even_if_it_was_unsent() -> None:
    """`is_echo` comes before everything else that a message may be."""
    message = {"mid": "g", "text": "ours", "is_echo": True, "is_deleted": True, "is_unsupported": True}
    parties = {"sender": {"id": "178"}, "recipient": {"id": "9"}}
    whole = {"object": "instagram", "entry": [{"id": "178", "messaging": [{**parties, "message": message}]}]}
    (event,) = CHANNEL.read(Request("POST", URL, {}, json.dumps(whole).encode())).events
    assert (event.kind, event.account, event.conversation) == ("echo", "178", "9")


@pytest.mark.parametrize("value", [None, 7, [], {}, {"sender": {"id": "9"}}, {"sender": 9, "recipient": 178}])
def test_a_change_without_sender_or_recipient_is_ignored(value: Any) -> None:
    entry = {"id": "178", "changes": [{"field": "messages", "value": value}], "field": "messages", "value": value}
    whole = {"object": "instagram", "entry": [entry]}
    assert CHANNEL.read(Request("POST", URL, {}, json.dumps(whole).encode())).events == ()


def test_a_sample_is_a_direct_message() -> None:
    sample = CHANNEL.sample("Olá", sender="9", id="g_1", url=URL, now=NOW)
    CHANNEL.verify(sample, NOW)
    (event,) = CHANNEL.read(sample).events
    assert event.kind in SAID
    assert (event.account, event.conversation, event.text, event.sent_at) == ("17841400000000001", "9", "Olá", NOW)


def test_a_refusal_names_the_variable_to_set() -> None:
    with pytest.raises(Forged, match="TURNTAKE_INSTAGRAM_APP_SECRET"):
        CHANNEL.verify(Request("POST", URL, {}, b"{}"), NOW)


def test_it_calls_instagrams_own_server_unless_told_otherwise() -> None:
    (base,) = (option for option in Instagram.options if option.name == "api_base")
    assert (base.default, base.is_secret) == ("https://graph.instagram.com/v25.0", False)
