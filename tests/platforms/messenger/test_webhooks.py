"""Messenger's webhooks: who is believed, and what they say."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.platforms.meta import recorded, strictly
from turntake.errors import Forged
from turntake.platforms.channel import ChatEvent, Request
from turntake.platforms.messenger.webhooks import Messenger
from turntake.testing.recording import Recording

NOW = 1_790_000_000_250
URL = "https://bot.example/webhooks/messenger"
CHANNEL = Messenger({"app_secret": "s", "verify_token": "t"})


@pytest.mark.parametrize("recording", recorded("messenger"), ids=lambda recording: recording.name)
def test_a_recording_says_this_and_no_more(recording: Recording) -> None:
    """Every field of every event is as recorded; what is not mentioned is not there."""
    assert Messenger(recording.options).read(recording.request).events == strictly(recording)


def read(*items: Any) -> tuple[ChatEvent, ...]:
    """The events of a webhook that holds these items."""
    whole = {"object": "page", "entry": [{"id": "31", "messaging": list(items)}]}
    return CHANNEL.read(Request("POST", URL, {}, json.dumps(whole).encode())).events


def item(**held: Any) -> dict[str, Any]:
    return {"sender": {"id": "8"}, "recipient": {"id": "31"}, "timestamp": NOW, **held}


def test_the_page_is_that_of_the_entry_where_the_item_names_none() -> None:
    (event,) = read(item(recipient=None, message={"mid": "m", "text": "hi"}))
    assert (event.account, event.conversation, event.kind) == ("31", "8", "message")


def test_every_edit_of_a_message_counts_and_a_redelivery_does_not() -> None:
    edits = [item(message_edit={"mid": "m", "text": said, "num_edit": n}) for n, said in enumerate(["a", "b", "b"])]
    once, again = read(*edits), read(*edits)
    assert len({event.message_id for event in once}) == 3
    assert [event.message_id for event in once] == [event.message_id for event in again]


def test_a_button_pressed_twice_counts_twice_although_it_has_no_id() -> None:
    press = {"title": "Go", "payload": "GO"}
    first, second = read(item(postback=press), item(timestamp=NOW + 1, postback=press))
    assert first.message_id != second.message_id


@pytest.mark.parametrize("held", [None, 3, "x", [], {}, {"mid": 3}, {"mid": [], "text": {}, "attachments": [None, {}]}])
@pytest.mark.parametrize(
    "kind", ["message", "message_edit", "reaction", "postback", "delivery", "read", "optin", "referral", "app_roles"]
)
def test_an_item_with_anything_inside_is_one_event(kind: str, held: Any) -> None:
    (event,) = read(item(**{kind: held}))
    assert (event.account, event.sender) == ("31", "8")
    assert event.message_id


def test_a_sticker_that_came_as_an_image_alone_is_kept() -> None:
    sticker = {"type": "image", "payload": {"url": "https://cdn.example/s.png", "sticker_id": 369239343222814}}
    (event,) = read(item(message={"mid": "m", "attachments": [sticker]}))
    (attachment,) = event.attachments
    assert (attachment.kind, attachment.name) == ("image", "👍")


def test_webhooks_of_other_products_of_the_app_are_ignored() -> None:
    whole = {"object": "instagram", "entry": [{"id": "31", "messaging": [item(message={"mid": "m", "text": "hi"})]}]}
    assert CHANNEL.read(Request("POST", URL, {}, json.dumps(whole).encode())).events == ()


def test_a_refusal_names_the_variable_to_set() -> None:
    with pytest.raises(Forged, match="TURNTAKE_MESSENGER_APP_SECRET"):
        CHANNEL.verify(Request("POST", URL, {}, b"{}"), NOW)
    with pytest.raises(Forged, match="TURNTAKE_MESSENGER_VERIFY_TOKEN"):
        CHANNEL.verify(Request("GET", URL), NOW)


@pytest.mark.parametrize("wrap", [lambda change: {"changes": [change]}, lambda change: change])
def test_what_is_said_to_another_app_is_not_for_us_in_any_envelope(wrap: Callable[[Any], dict[str, Any]]) -> None:
    """Another app has the thread (standby) and answers."""
    for field, kind in (("standby", "standby"), ("messages", "message")):
        entry = {"id": "31", **wrap({"field": field, "value": item(message={"mid": "m", "text": "hi"})})}
        whole = {"object": "page", "entry": [entry]}
        (event,) = CHANNEL.read(Request("POST", URL, {}, json.dumps(whole).encode())).events
        assert (event.kind, event.account, event.sender) == (kind, "31", "8")
