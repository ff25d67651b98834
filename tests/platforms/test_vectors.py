"""Webhooks of other projects' tests, where they are at hand: our channels read them as they should be read."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from turntake.errors import Forged, Unreadable
from turntake.instants import to_ms
from turntake.platforms.channel import SAID, Channel, ChatEvent, Request
from turntake.platforms.discord.content import gateway_events
from turntake.platforms.discord.webhooks import Discord
from turntake.platforms.generic.webhooks import Generic
from turntake.platforms.instagram.webhooks import Instagram
from turntake.platforms.messenger.webhooks import Messenger
from turntake.platforms.slack.webhooks import Slack
from turntake.platforms.telegram.typing import events_of
from turntake.platforms.telegram.webhooks import Telegram
from turntake.platforms.twilio.webhooks import Twilio
from turntake.platforms.whatsapp.webhooks import WhatsApp

# They belong to those projects, so they lie beside this repository and not in it.
VECTORS = Path(__file__).parents[3] / "shared" / "vectors"
CHANNELS: Mapping[str, type[Channel]] = {
    "discord": Discord,
    "generic_json": Generic,
    "instagram": Instagram,
    "messenger": Messenger,
    "slack": Slack,
    "telegram": Telegram,
    "twilio": Twilio,
    "whatsapp_cloud": WhatsApp,
}
TIMESTAMPS = ("webhook-timestamp", "x-slack-request-timestamp", "x-signature-timestamp")
SOME_TIME = 1_760_000_000
OWN_ID = "1457469483726668048"

POLICY: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **dict.fromkeys(
        ("twilio/047-chatwoot-multiple-media", "twilio/049-vercel-mms", "twilio/067-derived-opt-out"),
        (
            "Twilio's ids have 32 hexadecimal digits. With a made-up one, it may be a repeated webhook.",
            {"type": "unsupported", "buffer": False, "account": "", "conversation": "", "sender": "", "text": ""}
            | {"external_id": "", "attachments": []},
        ),
    ),
    "slack/017-bolt-message-changed-event-payload": (
        "An edit is by whom the edited message is by, although the envelope of the change names nobody.",
        {"sender": "U111"},
    ),
    "telegram/051-mtproto-typing-updates": (
        "A bot's webhooks know a group and a channel by the Bot API's negative ids, and a topic as a thread.",
        {"7": ("7", ""), "55": ("-55", ""), "66:3": ("-1000000000066", "3")},
    ),
}
"""Where we read a vector in another way than it suggests: why, and what we expect of its events instead."""

Vector = Mapping[str, Any]


def vectors() -> list[Vector]:
    return [json.loads(file.read_bytes()) for file in sorted(VECTORS.glob("*/*.json"))]


def some(*kinds: str) -> pytest.MarkDecorator:
    """The test for each vector of these kinds, if they are here."""
    if not VECTORS.is_dir():
        return pytest.mark.skip("the vectors are not here: they are expected beside the repository, in shared/vectors")
    chosen = [vector for vector in vectors() if vector["kind"] in kinds]
    return pytest.mark.parametrize("vector", chosen, ids=lambda vector: vector["id"])


def channel_of(vector: Vector) -> Channel:
    """The channel, set up with the vector's secrets."""
    return CHANNELS[vector["channel"]](vector["secrets"])


def request_of(vector: Vector) -> Request:
    """The request at the address where the platform calls."""
    said, expected = vector["request"], vector["expect"]
    is_binary = said.get("body_encoding") == "base64"
    url = expected.get("public_url") or expected.get("configured_url") or said["url"]
    headers = {name.lower(): value for name, value in said["headers"].items()}
    body = said.get("body") or ""
    return Request(said["method"], url, headers, base64.b64decode(body) if is_binary else body.encode())


def now_of(vector: Vector, request: Request) -> int:
    written = [request.headers[name] for name in TIMESTAMPS if request.headers.get(name, "").isdecimal()]
    return 1000 * int(vector.get("clock") or next(iter(written), SOME_TIME))


def expected_of(vector: Vector) -> list[dict[str, Any]]:
    """What the events should be, one for each target, after our own policy."""
    _, ours = POLICY.get(vector["id"], ("", {}))
    return [
        {**said, **target, **ours}
        for said in vector["expect"].get("events", [])
        for target in ([{"target": each} for each in said["targets"]] if "targets" in said else [{}])
    ]


def facts(event: ChatEvent, said: Mapping[str, Any], earlier: Sequence[ChatEvent]) -> dict[str, Any]:
    """What we read, under the names and with the details that the vector has."""
    is_said = event.kind in SAID
    is_repeated = is_said and event.message_id in [other.message_id for other in earlier]
    read: dict[str, Any] = {
        "type": "duplicate" if is_repeated else event.kind,
        "buffer": is_said and not is_repeated,
        "account": event.account,
        "conversation": event.conversation,
        "sender": event.sender,
        "external_id": event.id,
        "text": event.text,
        "ts_ms": event.sent_at,
        "reply_to": event.reply_to,
        "target": event.target,
        "thread": event.thread,
        "group": event.is_group,
        "group_key": event.metadata.get("groupKey"),
        "payload": event.metadata.get("payload"),
        "ttl_s": event.ttl_ms // 1000,
    }
    return {name: value for name, value in read.items() if name in wanted(said)}


def wanted(said: Mapping[str, Any]) -> dict[str, Any]:
    """What the vector says for sure. What it marks as policy is ours to choose."""
    sure = {name: value for name, value in said.items() if not (said.get("policy") and name in ("type", "buffer"))}
    if "ts_iso" in said:
        sure["ts_ms"] = to_ms(said["ts_iso"])
    return {name: "" if value is None and name not in ("ts_ms", "reply_to") else value for name, value in sure.items()}


def check_events(events: Sequence[ChatEvent], expected: Sequence[Mapping[str, Any]]) -> None:
    assert len(events) == len(expected), [event.kind for event in events]
    for place, (event, said) in enumerate(zip(events, expected, strict=True)):
        read = facts(event, said, events[:place])
        assert read == {name: value for name, value in wanted(said).items() if name in read}
        if "attachments" in said or (said["type"] == "message" and not said.get("policy")):
            check_attachments(event, said.get("attachments", []))


def check_attachments(event: ChatEvent, expected: Sequence[Mapping[str, Any]]) -> None:
    names = {"ref": "id", "mime": "mime_type", "kind": "kind", "url": "url"}
    assert len(event.attachments) == len(expected)
    for attachment, said in zip(event.attachments, expected, strict=True):
        for name in names.keys() & said.keys():
            assert getattr(attachment, names[name]) == said[name], name


def check_answer(channel: Channel, request: Request, expected: Mapping[str, Any]) -> None:
    answer = channel.read(request).answer
    assert answer.status // 100 == 2
    if "body_exact" in expected:
        assert answer.body == expected["body_exact"].encode()
    if "body_json" in expected:
        assert json.loads(answer.body) == expected["body_json"]
    if "response_content_type" in expected:
        assert answer.content_type.startswith(expected["response_content_type"])
    if expected.get("response_body_is_empty_twiml"):
        assert answer.body.endswith(b"<Response/>")


@some("signature", "payload", "handshake", "malformed", "dedupe")
def test_a_webhook_is_read_as_it_should_be(vector: Vector) -> None:
    """The signature's verdict, the events one by one, and the answer."""
    channel, request, expected = channel_of(vector), request_of(vector), vector["expect"]
    status = expected.get("http_status")
    if expected.get("signature_valid") is False or status in (401, 403):
        with pytest.raises(Forged) as refused:
            channel.verify(request, now_of(vector, request))
        assert refused.value.status in (401, 403)
        return
    channel.verify(request, now_of(vector, request))
    if status == 400:
        with pytest.raises(Unreadable):
            channel.read(request)
        return
    check_meaning(channel, request, vector)


def check_meaning(channel: Channel, request: Request, vector: Vector) -> None:
    expected = vector["expect"]
    try:
        events = channel.read(request).events
    except Unreadable:
        assert "http_status" not in expected, "it should have been read"
        assert not expected.get("events")
        return
    check_answer(channel, request, expected)
    if "events" in expected:
        check_events(events, expected_of(vector))
    if "messages" in expected:
        assert sum(event.kind in SAID for event in events) == expected["messages"]
        assert len({event.conversation for event in events}) == expected["conversations"]
    if "expected_order" in expected:
        assert [event.id for event in events] == expected["expected_order"]
    again = channel_of(vector).read(request).events
    assert [event.message_id for event in again] == [event.message_id for event in events]


@some("gateway")
def test_a_dispatch_of_the_gateway_is_read_as_it_should_be(vector: Vector) -> None:
    said = vector["request"]
    check_events(gateway_events(said["event"], json.loads(said["body"]), OWN_ID), expected_of(vector))


@some("typing")
def test_a_sign_of_typing_is_read_as_it_should_be(vector: Vector) -> None:
    _, ours = POLICY[vector["id"]]
    for update in vector["expect"]["updates"]:
        (event,) = events_of(update)
        assert (event.conversation, event.thread) == ours[update["conversation"]]
        assert event.kind == ("stopped" if update["means"] == "stopped" else "typing")
        assert event.metadata.get("action", "stopped") == update["means"]
        assert event.ttl_ms == (0 if event.kind == "stopped" else vector["expect"]["ttl_seconds"] * 1000)


def test_every_policy_is_about_a_vector() -> None:
    """A vector that is gone takes its policy with it."""
    if VECTORS.is_dir():
        assert POLICY.keys() <= {vector["id"] for vector in vectors()}
    assert all(reason for reason, _ in POLICY.values())
