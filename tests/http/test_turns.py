"""/v1/turns: what became of a turn, and its end from outside."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from harness.servers import Echo, Later, talking, until, watching
from turntake import Rules, TurnTake

QUICK = Rules(silence_ms=1, typing_inference_ms=1, max_attempts=2)


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with talking(TurnTake("memory://", rules=QUICK, agent=Later())) as client:
        yield client


def claimed(client: httpx2.Client, text: str = "hi") -> str:
    """The id of a turn that an agent has."""
    with watching(client) as events:
        client.post("/v1/messages", json={"conversation": "ana", "id": text, "text": text})
        turn_id: str = until(events, "claimed")["turnId"]
        return turn_id


def act(client: httpx2.Client, turn_id: str, name: str, body: Any = None) -> httpx2.Response:
    return client.post(f"/v1/turns/{turn_id}/{name}", json=body)


def test_a_turn_shows_its_whole_life() -> None:
    """From the first message to the answer, with the times between."""
    with talking(TurnTake("memory://", rules=QUICK, agent=Echo())) as client, watching(client) as events:
        sent = {"conversation": "ana", "channel": "whatsapp", "id": "1", "text": "hi", "agent": "sales"}
        client.post("/v1/messages", json=[sent, {**sent, "id": "2", "text": "there"}])
        turn = client.get(f"/v1/turns/{until(events, 'answered')['turnId']}").json()
    assert {name: turn[name] for name in ("conversationId", "tenant", "channel", "account", "topic", "agent")} == {
        "conversationId": "ana",
        "tenant": "default",
        "channel": "whatsapp",
        "account": "default",
        "topic": "",
        "agent": "sales",
    }
    assert (turn["status"], turn["attempt"], turn["messageCount"]) == ("answered", 1, 2)
    assert (turn["text"], turn["replies"], turn["error"]) == ("hi\nthere", ["hi\nthere"], "")
    assert [decision["reason"] for decision in turn["decisions"]] == ["silence", "silence"]
    assert turn["bufferedAt"] <= turn["dueAt"] <= turn["claimedAt"] <= turn["settledAt"]
    assert turn["waitedMs"] >= turn["latenessMs"] >= 0
    assert (turn["leaseUntilAt"], turn["retryAt"], turn["metadata"]) == (None, None, {"platform": "whatsapp"})


@pytest.mark.parametrize(
    ("body", "replies"),
    [
        ({"reply": "hello"}, ["hello"]),
        ({"replies": ["a", "b"]}, ["a", "b"]),
        ({"replies": []}, []),
        ({"reply": ""}, []),
        ({}, []),
        (None, []),
    ],
)
def test_completing(client: httpx2.Client, body: Any, replies: list[str]) -> None:
    """One reply, several, or nothing to say."""
    turn_id = claimed(client)
    done = act(client, turn_id, "complete", body)
    assert (done.status_code, done.json()["status"], done.json()["replies"]) == (200, "answered", replies)
    assert client.get(f"/v1/turns/{turn_id}").json() == done.json()


def test_completing_without_a_body(client: httpx2.Client) -> None:
    """Nothing at all is nothing to say."""
    done = client.post(f"/v1/turns/{claimed(client)}/complete")
    assert (done.status_code, done.json()["replies"]) == (200, [])


def test_completing_again_returns_the_first_result(client: httpx2.Client) -> None:
    """An agent that asks again after a lost answer does no harm."""
    turn_id = claimed(client)
    first = act(client, turn_id, "complete", {"reply": "one"})
    assert act(client, turn_id, "complete", {"reply": "two"}).json() == first.json()


def test_failing_then_succeeding(client: httpx2.Client) -> None:
    """The turn waits for its next attempt; it is the same turn."""
    turn_id = claimed(client)
    failed = act(client, turn_id, "fail", {"error": "no idea", "retryAfterMs": 600_000})
    assert failed.status_code == 200
    turn = failed.json()
    assert (turn["status"], turn["error"], turn["leaseUntilAt"]) == ("answering", "no idea", None)
    assert turn["retryAt"] > turn["claimedAt"]
    assert act(client, turn_id, "extend").status_code == 409
    assert act(client, turn_id, "complete", {"reply": "late"}).json()["replies"] == ["late"]


def test_failing_for_the_last_time(client: httpx2.Client) -> None:
    """The order that ended the turn is answered with its end; one after that came too late."""
    with watching(client) as events:
        turn_id = claimed(client)
        until(events, "claimed")
        act(client, turn_id, "fail", {"error": "first", "retryAfterMs": 0})
        assert until(events, "claimed")["attempt"] == 2
    dead = act(client, turn_id, "fail", {"error": "second"})
    assert (dead.status_code, dead.json()["status"], dead.json()["error"]) == (200, "dead", "second")
    for name, body in (("fail", {"error": "third"}), ("complete", {"reply": "hi"}), ("extend", None)):
        late = act(client, turn_id, name, body)
        assert (late.status_code, late.headers["content-type"]) == (409, "application/problem+json")
        assert "dead" in late.json()["detail"]
    assert client.get(f"/v1/turns/{turn_id}").json()["replies"] == []


def test_an_answered_turn_cannot_fail(client: httpx2.Client) -> None:
    """The first result stands."""
    turn_id = claimed(client)
    act(client, turn_id, "complete", {"reply": "hi"})
    assert act(client, turn_id, "fail", {"error": "oh"}).status_code == 409
    assert act(client, turn_id, "extend").status_code == 409
    assert client.get(f"/v1/turns/{turn_id}").json()["status"] == "answered"


def test_an_interrupted_turn_cannot_be_completed() -> None:
    """A new message took its place; whoever answers the old one is told."""
    turns = TurnTake("memory://", rules=Rules(silence_ms=1, typing_inference_ms=1, on_busy="interrupt"), agent=Later())
    with talking(turns) as client:
        turn_id = claimed(client, "hi")
        claimed(client, "wait")
        late = act(client, turn_id, "complete", {"reply": "hello"})
        assert (late.status_code, "interrupted" in late.json()["detail"]) == (409, True)


def test_extending(client: httpx2.Client) -> None:
    """The lease runs from now for as long as asked; without a word on that, it is never cut short."""
    turn_id = claimed(client)
    longer = act(client, turn_id, "extend", {"leaseMs": 86_400_000})
    assert longer.status_code == 200
    same = act(client, turn_id, "extend")
    assert same.json()["leaseUntilAt"] >= longer.json()["leaseUntilAt"]
    shorter = act(client, turn_id, "extend", {"leaseMs": 60_000})
    assert shorter.json()["leaseUntilAt"] < longer.json()["leaseUntilAt"]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("complete", {"reply": "a", "replies": ["b"]}),
        ("complete", {"reply": 1}),
        ("complete", {"answer": "a"}),
        ("complete", {"reply": "x" * 65_537}),
        ("complete", {"replies": ["x"] * 101}),
        ("complete", "hello"),
        ("fail", {}),
        ("fail", None),
        ("fail", {"error": "x" * 4_097}),
        ("fail", {"error": "x", "retryAfterMs": -1}),
        ("extend", {"leaseMs": 0}),
        ("extend", {"leaseMs": 1.5}),
    ],
)
def test_bad_bodies_are_refused(client: httpx2.Client, name: str, body: Any) -> None:
    """And the turn stays as it was."""
    turn_id = claimed(client)
    before = client.get(f"/v1/turns/{turn_id}").json()
    refused = act(client, turn_id, name, body)
    assert (refused.status_code, refused.headers["content-type"]) == (400, "application/problem+json")
    assert client.get(f"/v1/turns/{turn_id}").json() == before


@pytest.mark.parametrize("turn_id", ["turn_0", "x", "turn_%00", "%FF", "'; DROP TABLE turns"])
def test_unknown_turns(client: httpx2.Client, turn_id: str) -> None:
    """A stale or foreign id changes nothing, whatever is asked of it."""
    assert client.get(f"/v1/turns/{turn_id}").status_code == 404
    assert act(client, turn_id, "complete", {"reply": "hi"}).status_code == 404
    assert act(client, turn_id, "fail", {"error": "hi"}).status_code == 404
    assert act(client, turn_id, "extend").status_code == 404


def steered() -> TurnTake:
    rules = Rules(silence_ms=1, typing_inference_ms=1, on_busy="steer")
    return TurnTake("memory://", rules=rules, agent=Later())


def send(client: httpx2.Client, text: str) -> None:
    client.post("/v1/messages", json={"conversation": "ana", "id": text, "text": text})


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["text"] for message in messages]


def test_an_agent_sees_and_absorbs_what_came_since() -> None:
    """What it absorbs is answered with its turn; what comes after that waits for the next one."""
    with talking(steered()) as client:
        turn_id = claimed(client)
        assert client.get(f"/v1/turns/{turn_id}/arrivals").json() == {
            "turnId": turn_id,
            "status": "answering",
            "messages": [],
        }
        send(client, "there")
        seen = client.get(f"/v1/turns/{turn_id}/arrivals", params={"waitMs": 20_000}).json()
        assert texts(seen["messages"]) == ["there"]
        taken = act(client, turn_id, "absorb").json()
        assert texts(taken["absorbed"]) == ["there"]
        assert (taken["turn"]["turnId"], texts(taken["turn"]["messages"])) == (turn_id, ["hi", "there"])
        assert act(client, turn_id, "absorb").json()["absorbed"] == []
        answered = act(client, turn_id, "complete", {"reply": "hello"}).json()
        assert (answered["status"], answered["messageCount"]) == ("answered", 2)


def test_only_a_turn_that_somebody_answers_absorbs(client: httpx2.Client) -> None:
    assert act(client, "turn_unknown", "absorb").status_code == 404
    assert client.get("/v1/turns/turn_unknown/arrivals").status_code == 404
    turn_id = claimed(client)
    act(client, turn_id, "fail", {"error": "busy", "retryAfterMs": 60_000})
    assert act(client, turn_id, "absorb").status_code == 409
    act(client, turn_id, "complete", {"reply": "hello"})
    late = act(client, turn_id, "absorb")
    assert (late.status_code, "answered" in late.json()["detail"]) == (409, True)
    assert client.get(f"/v1/turns/{turn_id}/arrivals").json()["messages"] == []


def test_other_rules_let_an_agent_absorb_nothing(client: httpx2.Client) -> None:
    turn_id = claimed(client)
    send(client, "there")
    assert act(client, turn_id, "absorb").json()["absorbed"] == []
    assert texts(client.get(f"/v1/turns/{turn_id}/arrivals").json()["messages"]) == ["there"]
