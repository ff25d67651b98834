"""The event: its names, its times, and that the same turn always gives the same bytes."""

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.conversation import a_turn
from turntake import Attachment, ConversationKey, Message
from turntake.deliver.cloudevents import BatchReady, ReplyReady, batch_ready, reply_ready, schema

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "event.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(schema())
AT = 1_700_000_000_000
ACME = ConversationKey.of("4917", tenant="Acme & Söhne", channel="whatsapp", account="berlin", topic="order/7")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
messages = st.builds(
    Message,
    id=texts,
    text=texts,
    sender=texts,
    sent_at=st.none() | st.integers(AT - 10**6, AT),
    attachments=st.lists(st.builds(Attachment, kind=texts, url=st.none() | texts), max_size=2).map(tuple),
    reply_to=st.none() | texts,
    metadata=st.dictionaries(texts, st.integers(-(2**53), 2**53) | texts, max_size=3),
    seq=st.integers(1, 100),
    received_at=st.integers(AT, AT + 10**6),
)


def as_json(event: msgspec.Struct) -> Any:
    return json.loads(msgspec.json.encode(event))


def test_names_are_those_of_the_design() -> None:
    """Nothing more, nothing less, nothing spelled otherwise: other programs read these."""
    event = as_json(batch_ready(a_turn()))
    assert set(event) == {"specversion", "id", "source", "type", "time", "datacontenttype", "subject", "data"}
    assert " ".join(event["data"]) == (
        "turnId conversationId conversationKey tenant channel account agent topic attempt reason messageCount text "
        "messages bufferedAt firstMessageAt lastMessageAt metadata decisions completionToken"
    )
    (message,) = event["data"]["messages"]
    assert " ".join(message) == "id seq sender text timestamp receivedAt attachments replyTo platform metadata"
    assert [set(decision) for decision in event["data"]["decisions"]] == [{"at", "dueAt", "reason"}]


def test_it_says_who_spoke_when_and_why_now() -> None:
    """A whole event, with a topic, an attachment and names that need escaping."""
    first = Message("m1", "Hi", "Ada", AT - 2_000, seq=1, received_at=AT)
    second = Message("m2", "", "Ada", AT - 1_500, (Attachment("image", mime_type="image/png"),), seq=2, received_at=AT)
    event = as_json(batch_ready(a_turn(first, second, key=ACME, attempt=2, agent="sales")))
    assert event["source"] == "/turntake/Acme%20%26%20S%C3%B6hne/whatsapp"
    assert event["subject"] == event["data"]["conversationKey"] == str(ACME)
    assert (event["specversion"], event["type"], event["id"]) == ("1.0", "messages.batch.ready", "turn_1")
    assert event["time"] == "2023-11-14T22:13:21.001Z"
    data = event["data"]
    assert (data["tenant"], data["conversationId"], data["topic"]) == ("Acme & Söhne", "4917", "order/7")
    assert (data["agent"], data["attempt"], data["reason"], data["messageCount"]) == ("sales", 2, "silence", 2)
    assert data["text"] == "Hi"
    assert data["bufferedAt"] == "2023-11-14T22:13:20.000Z"
    assert (data["firstMessageAt"], data["lastMessageAt"]) == ("2023-11-14T22:13:18.000Z", "2023-11-14T22:13:18.500Z")
    assert data["metadata"] == {"platform": "whatsapp"}
    assert data["messages"][1]["attachments"] == [{"kind": "image", "mimeType": "image/png"}]


@settings(deadline=None)
@given(st.lists(messages, min_size=1, max_size=4), st.integers(2, 1_000))
def test_only_the_attempt_differs(said: list[Message], attempt: int) -> None:
    """The event of a later attempt is the first one's, byte for byte, but for one number."""
    first = msgspec.json.encode(batch_ready(a_turn(*said)))
    again = msgspec.json.encode(batch_ready(a_turn(*said, attempt=attempt)))
    assert again.replace(b'"attempt":%d,"reason"' % attempt, b'"attempt":1,"reason"') == first


@settings(deadline=None)
@given(st.lists(messages, min_size=1, max_size=4))
def test_it_keeps_to_its_schema(said: list[Message]) -> None:
    """Whatever people send, the event is as published."""
    VALIDATOR.validate(as_json(batch_ready(a_turn(*said))))


def test_the_published_schema_is_current() -> None:
    """If this fails, write `json.dumps(schema(), indent=2)` and a line end to docs/reference/event.schema.json."""
    jsonschema.Draft202012Validator.check_schema(schema())
    assert SCHEMA.read_text("utf-8") == json.dumps(schema(), indent=2) + "\n"


def test_a_reply_is_an_event_of_its_own() -> None:
    """Its id names the turn and the place in the answer."""
    event = as_json(reply_ready(ACME, "turn_1", 1, "Gladly."))
    assert (event["id"], event["type"]) == ("turn_1.1", "messages.reply.ready")
    assert event["data"] == {
        "turnId": "turn_1",
        "conversationId": "4917",
        "conversationKey": str(ACME),
        "tenant": "Acme & Söhne",
        "channel": "whatsapp",
        "account": "berlin",
        "topic": "order/7",
        "index": 1,
        "text": "Gladly.",
    }


def test_the_documented_events_are_real() -> None:
    """The examples in docs/reference/event.md keep to the schema and to the reply's shape."""
    blocks = (SCHEMA.parent / "event.md").read_text("utf-8").split("```json\n")[1:]
    batch, reply = (block.split("```")[0] for block in blocks)
    VALIDATOR.validate(json.loads(batch))
    msgspec.json.decode(batch, type=BatchReady)
    data = msgspec.json.decode(reply, type=ReplyReady).data
    assert as_json(reply_ready(ConversationKey.of("ada"), data.turn_id, data.index, data.text)) == json.loads(reply)


def test_the_text_is_in_the_format_that_the_rules_say() -> None:
    """With `chat`, the messages for a model stand beside the lines; else they are left out."""
    turn = a_turn(Message("m1", "Hi", "Ada", received_at=AT), Message("m2", "you", "Ada", received_at=AT + 5_000))
    assert as_json(batch_ready(turn))["data"]["text"] == "Hi\nyou"
    turn.text_format = "times"
    assert as_json(batch_ready(turn))["data"]["text"] == "[+0s] Hi\n[+5s] you"
    assert "chatMessages" not in as_json(batch_ready(turn))["data"]
    turn.text_format = "chat"
    event = as_json(batch_ready(turn))
    VALIDATOR.validate(event)
    assert event["data"]["text"] == "Hi\nyou"
    assert event["data"]["chatMessages"] == [{"role": "user", "content": "Hi"}, {"role": "user", "content": "you"}]
