"""POST /v1/messages, over a real server."""

from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
import pytest

from harness.servers import talking
from turntake import ConversationKey, Rules, StoreUnavailable, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.clock import SystemClock
from turntake.rules.records import Append, Appended

PATIENT = Rules(silence_ms=60_000, typing_inference_ms=60_000, max_wait_ms=600_000)
ANA = {"conversation": "ana"}


@pytest.fixture
def turns() -> TurnTake:
    return TurnTake("memory://", rules=PATIENT, role="accept")


@pytest.fixture
def client(turns: TurnTake) -> Iterator[httpx2.Client]:
    with talking(turns) as client:
        yield client


def post(client: httpx2.Client, body: Any) -> httpx2.Response:
    if isinstance(body, bytes):
        return client.post("/v1/messages", content=body)
    return client.post("/v1/messages", json=body)


def buffered(client: httpx2.Client) -> int:
    conversations = client.get("/v1/conversations").json()["conversations"]
    return sum(conversation["messageCount"] for conversation in conversations)


def test_a_message_is_buffered(client: httpx2.Client) -> None:
    """The answer says until when it waits, and why."""
    response = post(client, {**ANA, "id": "1", "text": "hi"})
    assert response.status_code == 202
    receipt = response.json()
    assert receipt.pop("dueAt").endswith("Z")
    assert receipt == {
        "status": "buffered",
        "conversationKey": "default:generic:default:ana",
        "messages": 1,
        "reason": "silence",
    }


def test_the_same_id_again_is_a_duplicate(client: httpx2.Client) -> None:
    """Sending again after a lost answer is safe."""
    first = post(client, {**ANA, "id": "1", "text": "hi"}).json()
    again = post(client, {**ANA, "id": "1", "text": "hi"}).json()
    assert again == first | {"status": "duplicate"}
    assert buffered(client) == 1


def test_a_blank_message_is_ignored(client: httpx2.Client) -> None:
    """There is nothing to read, so nothing waits."""
    receipt = post(client, {**ANA, "id": "1", "text": "  "}).json()
    assert (receipt["status"], receipt["dueAt"], receipt["messages"]) == ("ignored", None, 0)


def test_every_field_is_kept(client: httpx2.Client) -> None:
    """What was sent is what the conversation shows."""
    sent = {
        "conversation": "ana",
        "channel": "whatsapp",
        "account": "+49 30 1234",
        "tenant": "acme",
        "agent": "sales",
        "topic": "order/4711",
        "id": "wamid.1",
        "sender": "ana@example.org",
        "text": "schön 🙂",
        "sentAt": "2026-11-15T10:30:00.250+01:00",
        "attachments": [{"kind": "image", "url": "https://example.org/a.png", "mimeType": "image/png"}],
        "replyTo": "wamid.0",
        "metadata": {"a": [1, {"b": None}]},
    }
    key = post(client, sent).json()["conversationKey"]
    assert key == "acme:whatsapp:~2B49~2030~201234:ana:order~2F4711".replace("~2B49", "+49")
    shown = client.get(f"/v1/conversations/{key}").json()
    assert shown["agent"] == "sales"
    (message,) = shown["messages"]
    assert message["timestamp"] == "2026-11-15T09:30:00.250Z"
    assert message["attachments"] == sent["attachments"]
    assert {name: message[name] for name in ("id", "sender", "text", "replyTo", "metadata")} == {
        name: sent[name] for name in ("id", "sender", "text", "replyTo", "metadata")
    }


def test_a_list_is_answered_in_order(client: httpx2.Client) -> None:
    """Each item has its own receipt, also for several conversations."""
    items = [{"conversation": f"c{n % 2}", "id": str(n), "text": "hi"} for n in range(4)]
    response = post(client, [*items, items[0]])
    assert response.status_code == 202
    assert [(r["status"], r["messages"]) for r in response.json()] == [
        ("buffered", 1),
        ("buffered", 1),
        ("buffered", 2),
        ("buffered", 2),
        ("duplicate", 2),
    ]


@pytest.mark.parametrize(
    "broken",
    [
        {"conversation": "ana", "id": 7},
        {"conversation": "ana"},
        {"conversation": "ana", "id": "2", "sentAt": "yesterday"},
        {"conversation": "", "id": "2"},
        {"conversation": "a\x00b", "id": "2"},
    ],
)
def test_a_list_with_one_bad_item_is_refused_whole(client: httpx2.Client, broken: dict[str, Any]) -> None:
    """The error names the item, and nothing is stored."""
    response = post(client, [{**ANA, "id": "1", "text": "hi"}, broken])
    assert response.status_code == 400
    assert [error["index"] for error in response.json()["errors"]] == [1]
    assert buffered(client) == 0


@pytest.mark.parametrize("count", [0, 101])
def test_a_list_holds_one_to_a_hundred(client: httpx2.Client, count: int) -> None:
    """An empty list is a mistake; more than a hundred come in several requests."""
    assert post(client, [{**ANA, "id": str(n), "text": "hi"} for n in range(count)]).status_code == 400
    assert buffered(client) == 0


GOOD = {"conversation": "ana", "id": "1", "text": "hi"}


def nested(levels: int) -> Any:
    """A list in a list, so many levels deep."""
    return [nested(levels - 1)] if levels > 1 else []


BAD_BODIES: dict[str, Any] = {
    "nothing": b"",
    "not JSON": b"hello",
    "cut off": b'{"conversation": "ana", "id": "1"',
    "trailing": b'{"conversation": "ana", "id": "1"} x',
    "not an object": b'"ana"',
    "null": b"null",
    "invalid UTF-8": b'{"conversation": "ana", "id": "1", "text": "\xff\xfe"}',
    "a lone surrogate": b'{"conversation": "ana", "id": "1", "text": "\\ud800 and more text"}',
    "a lone low surrogate": b'{"conversation": "ana", "id": "1", "text": "\\udc00 and more text"}',
    "surrogates as bytes": b'{"conversation": "ana", "id": "1", "text": "\xed\xa0\x80"}',
    "a surrogate as a key": b'{"conversation": "ana", "id": "1", "metadata": {"\\ud800aaaaaa": 1}}',
    "10,000 levels": b"[" * 10_000 + b"]" * 10_000,
    "10,000 levels of metadata": b'{"conversation":"a","id":"1","metadata":{"a":'
    + b"[" * 10_000
    + b"]" * 10_000
    + b"}}",
    "100 levels of metadata": b'{"conversation":"a","id":"1","metadata":{"a":' + b"[" * 100 + b"]" * 100 + b"}}",
    "65 levels with the message itself": {**GOOD, "metadata": {"a": nested(63)}},
    "wrong type": {**GOOD, "text": 5},
    "no id": {"conversation": "ana", "text": "hi"},
    "blank id": {**GOOD, "id": ""},
    "no conversation": {"id": "1", "text": "hi"},
    "unknown field": {**GOOD, "txt": "hi"},
    "long id": {**GOOD, "id": "i" * 257},
    "id of too many bytes": {**GOOD, "id": "ü" * 129},
    "long sender": {**GOOD, "sender": "ü" * 129},
    "long id of a message that it replies to": {**GOOD, "replyTo": "ü" * 129},
    "long text": {**GOOD, "text": "x" * 65_537},
    "long topic": {**GOOD, "topic": "x" * 257},
    "large metadata": {**GOOD, "metadata": {"a": "x" * 16_384}},
    "a number beyond 64 bits": {**GOOD, "metadata": {"a": 2**64}},
    "many attachments": {**GOOD, "attachments": [{"kind": "image"}] * 33},
    "an attachment of no kind": {**GOOD, "attachments": [{"url": "https://example.org"}]},
    "an attachment with an unknown field": {**GOOD, "attachments": [{"kind": "image", "bytes": "…"}]},
    "an attachment with large metadata": {**GOOD, "attachments": [{"kind": "image", "metadata": {"a": "x" * 16_384}}]},
    "a long kind": {**GOOD, "attachments": [{"kind": "x" * 65}]},
    "a long link": {**GOOD, "attachments": [{"kind": "image", "url": "x" * 4_097}]},
    "a long name": {**GOOD, "attachments": [{"kind": "image", "name": "x" * 1_025}]},
    "no time zone": {**GOOD, "sentAt": "2026-11-15T09:30:00"},
    "the year 0": {**GOOD, "sentAt": "0001-01-01T00:00:00+23:00"},
    "the year 10000": {**GOOD, "sentAt": "9999-12-31T23:59:59.9999-01:00"},
    "an unknown time": {**GOOD, "sentAt": "soon"},
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_body_is_refused(client: httpx2.Client, body: Any) -> None:
    """A clear error, nothing stored, and the next message is taken."""
    response = post(client, body)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["type"], problem["title"], problem["status"]) == ("about:blank", "Bad Request", 400)
    assert len(problem["detail"]) > 10
    assert buffered(client) == 0
    assert post(client, GOOD).status_code == 202


def test_an_unknown_field_is_named(client: httpx2.Client) -> None:
    """A typo is found at once."""
    assert "`txt`" in post(client, {**GOOD, "txt": "hi"}).json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {**GOOD, "id": "ü" * 128, "sender": "ü" * 128},
        {**GOOD, "text": "🙂" * 65_536},
        {**GOOD, "metadata": {"a": "x" * 16_000}},
        {**GOOD, "metadata": {"a": nested(62)}},
        {**GOOD, "text": "", "attachments": [{"kind": "audio"}] * 32},
        {**GOOD, "attachments": [{"kind": "x" * 64, "url": "x" * 4_096, "name": "x" * 1_024}]},
        {**GOOD, "text": "\x00 is a character"},
        {**GOOD, "sentAt": "2026-11-15 09:30:00Z"},
    ],
)
def test_the_largest_is_still_taken(client: httpx2.Client, body: dict[str, Any]) -> None:
    """A limit is the last value that works."""
    assert post(client, body).json()["status"] == "buffered"


def test_accepting_is_one_call(turns: TurnTake, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list reaches the store in one piece, so that it can store each conversation's part of it at once."""
    calls = []
    accept = turns.accept_sound

    async def counted(arrivals: Any) -> Any:
        calls.append([arrival.key for arrival in arrivals])
        return await accept(arrivals)

    monkeypatch.setattr(turns, "accept_sound", counted)
    post(client, [{"conversation": name, "id": "1", "text": "hi"} for name in "abc"])
    assert calls == [[ConversationKey.of(name) for name in "abc"]]


class HalfDone(MemoryStore):
    """Fails once, after it has stored the first conversation's messages."""

    has_failed = False

    async def append(self, arrivals: Sequence[Append]) -> list[Appended]:
        if self.has_failed:
            return await super().append(arrivals)
        self.has_failed = True
        await super().append([arrival for arrival in arrivals if arrival.key == arrivals[0].key])
        raise StoreUnavailable


def test_a_list_that_failed_in_the_middle_is_sent_again_whole() -> None:
    """What was stored before the failure is known by its ids, and the rest is stored now."""
    items = [{"conversation": name, "id": str(n), "text": "hi"} for n in range(2) for name in ("ana", "bob")]
    with talking(TurnTake(HalfDone(SystemClock()), rules=PATIENT, role="accept")) as client:
        assert post(client, items).status_code == 503
        again = post(client, items)
        statuses = [receipt["status"] for receipt in again.json()]
        assert (again.status_code, statuses) == (202, ["duplicate", "buffered", "duplicate", "buffered"])
        assert buffered(client) == 4
