"""POST /v1/activity, over a real server."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from harness.servers import talking
from turntake import Rules, TurnTake

PATIENT = Rules(silence_ms=60_000, typing_inference_ms=60_000, max_wait_ms=600_000)
ANA = {"conversation": "ana"}


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with talking(TurnTake("memory://", rules=PATIENT, role="accept")) as client:
        yield client


def post(client: httpx2.Client, body: Any) -> httpx2.Response:
    if isinstance(body, bytes):
        return client.post("/v1/activity", content=body)
    return client.post("/v1/activity", json=body)


def test_activity_moves_the_deadline(client: httpx2.Client) -> None:
    """While the person composes, what waits goes on waiting; when they stop, it no longer does."""
    due = client.post("/v1/messages", json={**ANA, "id": "1", "text": "hi"}).json()["dueAt"]
    pushed = post(client, {**ANA, "kind": "typing", "ttlMs": 120_000})
    assert pushed.status_code == 202
    assert pushed.json()["reason"] == "activity"
    assert pushed.json()["dueAt"] > due
    back = post(client, {**ANA, "kind": "stopped"}).json()
    assert (back["reason"], back["dueAt"] < pushed.json()["dueAt"]) == ("silence", True)


def test_activity_without_messages_does_nothing(client: httpx2.Client) -> None:
    """Nobody waits, so there is no deadline to move."""
    response = post(client, {**ANA, "kind": "recording"})
    assert (response.status_code, response.json()) == (202, {"dueAt": None, "reason": None})
    assert client.get("/v1/conversations").json()["conversations"] == []


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", {"kind": "typing"}, {**ANA, "kind": "sleeping"}, {**ANA, "kind": "typing", "ttlMs": -1}],
)
def test_bad_activity_is_refused(client: httpx2.Client, body: Any) -> None:
    """As for messages."""
    assert post(client, body).status_code == 400


def test_a_word_that_is_not_allowed_comes_with_those_that_are(client: httpx2.Client) -> None:
    """In bodies and in queries."""
    refused = post(client, {**ANA, "kind": "dancing"}).json()
    assert refused["detail"] == (
        "Invalid enum value 'dancing'; allowed are 'typing', 'recording', 'stopped' at $.kind."
    )
    assert refused["errors"][0]["at"] == "$.kind"
    listed = client.get("/v1/conversations", params={"status": "asleep"}).json()
    assert "Invalid enum value 'asleep'; allowed are '" in listed["detail"]
    assert "'collecting'" in listed["detail"]
