"""Slack's webhooks: who is believed, and what posts, buttons and commands mean."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

from turntake import ConfigurationError
from turntake.errors import Forged, Unreadable
from turntake.platforms.channel import ChatEvent, Request
from turntake.platforms.slack.webhooks import Slack
from turntake.testing.channel_contract import ChannelContract
from turntake.testing.recording import Recording, recordings_in

SECRET = "recorded-signing-secret"
NOW = 1_790_000_000_000
URL = "https://bot.example/webhooks/slack"
RECORDINGS = recordings_in(Path(__file__).parents[2] / "recordings" / "slack")
SLACK = Slack({"signing_secret": SECRET})


class TestSlack(ChannelContract):
    channel = Slack
    recordings = RECORDINGS
    proof = ("x-slack-request-timestamp", "x-slack-signature")


def recorded(name: str) -> Recording:
    return next(recording for recording in RECORDINGS if recording.name == name)


def read(name: str) -> ChatEvent:
    (event,) = SLACK.read(recorded(name).request).events
    return event


def posted(**event: Any) -> ChatEvent:
    said = {"type": "message", "channel": "C1", "user": "U1", "text": "hi", "ts": "1790000000.000100"} | event
    envelope = {"type": "event_callback", "team_id": "T1", "api_app_id": "A1", "event": said}
    (found,) = SLACK.read(
        Request("POST", URL, {"content-type": "application/json"}, json.dumps(envelope).encode())
    ).events
    return found


def refusal(request: Request, now: int = NOW, secret: str = SECRET) -> str:
    with pytest.raises(Forged) as refused:
        Slack({"signing_secret": secret}).verify(request, now)
    assert refused.value.status == 401
    return str(refused.value)


def with_headers(**headers: str) -> Request:
    request = recorded("direct-message").request
    return replace(request, headers={**request.headers, **{f"x-slack-{k}": v for k, v in headers.items()}})


# --- who is believed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late_ms", [-300_000, 0, 300_000])
def test_a_timestamp_five_minutes_off_is_accepted(late_ms: int) -> None:
    SLACK.verify(recorded("direct-message").request, NOW + late_ms)


@pytest.mark.parametrize("late_ms", [-300_001, 300_001])
def test_a_timestamp_more_than_five_minutes_off_is_refused(late_ms: int) -> None:
    assert "five minutes" in refusal(recorded("direct-message").request, NOW + late_ms)


@pytest.mark.parametrize("seconds", ["", "abc", "1790000000.0", "-1790000000", "+1790000000", " 1790000000", "١٧٩٠"])
def test_a_time_that_is_not_in_whole_seconds_is_refused(seconds: str) -> None:
    assert "whole seconds" in refusal(with_headers(**{"request-timestamp": seconds}))


@pytest.mark.parametrize("signature", ["", "v0=", "é", "\udcff", "日本"])
def test_a_signature_of_any_characters_is_refused(signature: str) -> None:
    assert "X-Slack-Signature" in refusal(with_headers(signature=signature))


def test_a_signature_of_another_version_or_spelling_is_refused() -> None:
    signature = recorded("direct-message").request.headers["x-slack-signature"]
    for other in (signature.replace("v0", "v1"), signature.upper(), signature[3:], signature + " "):
        refusal(with_headers(signature=other))


def test_both_secrets_are_accepted_during_a_rotation() -> None:
    request = recorded("direct-message").request
    Slack({"signing_secret": f"new, {SECRET}"}).verify(request, NOW)
    Slack({"signing_secret": f"{SECRET},new"}).verify(request, NOW)
    refusal(request, secret="new")


def test_without_a_secret_the_refusal_says_what_to_set() -> None:
    assert "TURNTAKE_SLACK_SIGNING_SECRET" in refusal(recorded("direct-message").request, secret="")


# --- how they are answered -------------------------------------------------------------------------------------------


def test_the_challenge_is_given_back_as_it_came() -> None:
    answer = SLACK.read(recorded("handshake").request).answer
    assert (answer.status, answer.body) == (200, b"3eZbrw1aBm2rZgRNFdxV2595E9CY")
    assert answer.content_type.startswith("text/plain")


@pytest.mark.parametrize("name", ["direct-message", "slash-command", "button", "dialog"])
def test_everything_else_is_answered_with_nothing(name: str) -> None:
    """Words in the answer to a command would be shown to the person."""
    answer = SLACK.read(recorded(name).request).answer
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b"null", b'"hi"', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        SLACK.read(Request("POST", URL, {"content-type": "application/json"}, body))


def test_a_form_whose_payload_is_broken_is_unreadable() -> None:
    form = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    with pytest.raises(Unreadable):
        SLACK.read(Request("POST", URL, form, urlencode({"payload": "{"}).encode()))


def test_a_retry_is_read_like_the_first_try() -> None:
    """The headers that call it a retry are not signed, so nothing may hang on them."""
    retry = with_headers(**{"retry-num": "1", "retry-reason": "http_timeout"})
    assert SLACK.read(retry).events == SLACK.read(recorded("direct-message").request).events


# --- what they mean --------------------------------------------------------------------------------------------------


def test_a_mention_and_the_message_it_is_are_one() -> None:
    """An app that is subscribed to both hears of one post twice."""
    mention, message = read("mention"), read("message-that-is-a-mention")
    assert mention == message


@pytest.mark.parametrize(
    ("channel", "kind", "is_group"),
    [
        ("C1", "channel", True),
        ("G1", "group", True),
        ("G1", "mpim", True),
        ("D1", "im", False),
        ("U1", "im", False),
        ("D1", "app_home", False),
        ("D1", None, False),
        ("C1", None, True),
        ("G1", None, True),
    ],
)
def test_who_talks_there_is_told_by_the_kind_of_channel_or_by_its_id(channel: str, kind: str, is_group: bool) -> None:
    assert posted(channel=channel, channel_type=kind).is_group is is_group


@pytest.mark.parametrize(
    ("subtype", "kind"),
    [
        ("file_share", "message"),
        ("me_message", "message"),
        ("thread_broadcast", "message"),
        ("bot_message", "bot_message"),
        ("message_replied", "message_replied"),
        ("channel_topic", "channel_topic"),
        ("channel_leave", "channel_leave"),
        ("huddle_thread", "huddle_thread"),
        ("typing", "unsupported"),
        ("delete", "unsupported"),
    ],
)
def test_a_subtype_says_whether_a_person_wrote_it(subtype: str, kind: str) -> None:
    """What Slack may yet invent has its own name, but none that would mean something here."""
    assert posted(subtype=subtype).kind == kind


def test_what_our_app_wrote_for_a_person_is_our_own_and_what_another_app_did_is_not() -> None:
    assert posted(app_id="A1").kind == "echo"
    assert posted(app_id="A2").kind == "message"


def test_a_message_without_a_channel_is_not_buffered() -> None:
    assert posted(channel=None).kind == "unsupported"


@pytest.mark.parametrize(
    ("ts", "sent_at"),
    [("1790000000.000999", 1_790_000_000_000), ("1790000000.9", 1_790_000_000_900), ("1790000000", NOW), ("x", None)],
)
def test_the_time_is_cut_to_milliseconds_and_the_id_is_left_alone(ts: str, sent_at: int | None) -> None:
    event = posted(ts=ts)
    assert (event.id, event.sent_at) == (ts, sent_at)


def test_the_sample_can_be_answered() -> None:
    """Slack takes a person's id for the direct chat with that person."""
    sample = SLACK.sample("hello", sender="U0ANN", id="m1", url=URL, now=NOW + 5)
    (event,) = SLACK.read(sample).events
    assert (event.conversation, event.is_group, event.sent_at) == ("U0ANN", False, NOW + 5)


def test_without_a_secret_there_is_no_sample() -> None:
    with pytest.raises(ConfigurationError, match="TURNTAKE_SLACK_SIGNING_SECRET"):
        Slack({}).sample("hello", sender="U0ANN", id="m1", url=URL, now=NOW)


SHARE = {"is_share": True, "is_msg_unfurl": True, "text": "we are closed", "fallback": "[Bob] we are closed"}
PDF = {"id": "F0MENU", "mimetype": "application/pdf", "name": "menu.pdf", "url_private": "https://files.test/F0MENU"}


def test_what_is_shared_beside_a_comment_is_part_of_the_message() -> None:
    event = posted(text="is this true?", attachments=[SHARE | {"files": [PDF]}])
    assert (event.kind, event.text) == ("message", "is this true?\nwe are closed")
    assert [(each.kind, each.id) for each in event.attachments] == [("file", "F0MENU")]


def test_a_file_that_is_shared_without_a_word_is_a_message() -> None:
    event = posted(text="", attachments=[{"is_share": True, "fallback": "[no preview available]", "files": [PDF]}])
    assert (event.kind, event.text) == ("message", "")
    assert [each.name for each in event.attachments] == ["menu.pdf"]


def test_a_preview_beside_a_comment_is_not_said() -> None:
    """Slack adds it under a link; nobody shared anything."""
    event = posted(text="see <https://x.test>", attachments=[{"text": "X, the site", "files": [PDF]}])
    assert (event.text, event.attachments) == ("see <https://x.test>", ())


def test_a_person_who_writes_in_our_apps_window_is_a_person() -> None:
    """Slack names the app there; only a person's own program gives a message a `client_msg_id`."""
    assert posted(app_id="A1", client_msg_id="0f2c").kind == "message"
    assert posted(app_id="A1").kind == "echo"
    assert posted(app_id="A1", client_msg_id="0f2c", bot_id="B1").kind == "bot_message"
