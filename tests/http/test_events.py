"""/v1/events: what happens, as it happens."""

import asyncio
import json
from contextlib import ExitStack

import httpx2
import pytest
from starlette.types import Message

from harness.servers import Echo, serving, talking, told, until, watching
from turntake import ConversationKey, Rules, TurnTake
from turntake.http import events as stream
from turntake.http.events import frame
from turntake.observe.stream import TurnAnswered
from turntake.testing.clock import VirtualClock

QUICK = Rules(silence_ms=1)
HI = {"conversation": "ana", "id": "1", "text": "a secret"}


def test_a_turn_from_buffered_to_answered() -> None:
    """Each step with its ids and times; what the person wrote is not told."""
    with talking(TurnTake("memory://", rules=QUICK, agent=Echo())) as client, watching(client) as events:
        client.post("/v1/messages", json=HI)
        steps = [next(events) for _ in range(4)]
    assert [kind for kind, _ in steps] == ["buffered", "due", "claimed", "answered"]
    buffered, due, claimed, answered = (event for _, event in steps)
    assert {event["conversationKey"] for _, event in steps} == {"default:generic:default:ana"}
    assert (buffered["messageId"], buffered["messages"], buffered["reason"]) == ("1", 1, "silence")
    assert due["turnId"] == claimed["turnId"] == answered["turnId"]
    assert buffered["dueAt"] == due["dueAt"] <= claimed["claimedAt"] <= claimed["leaseUntilAt"]
    assert answered["replies"] == ["a secret"]
    assert "a secret" not in json.dumps([buffered, due, claimed])


def test_a_failed_turn_is_told() -> None:
    """The attempt, and the end as a dead letter."""

    async def fails(turn: object) -> str:
        raise RuntimeError("a secret")

    turns = TurnTake("memory://", rules=Rules(silence_ms=1, max_attempts=1), agent=fails)
    with talking(turns) as client, watching(client) as events:
        client.post("/v1/messages", json=HI)
        dead = until(events, "dead-lettered")
    assert dead["reason"] == "failed once"
    assert "a secret" not in json.dumps(dead)


def test_one_conversation_only() -> None:
    """The others are left out."""
    with talking(TurnTake("memory://", role="accept")) as client:
        with watching(client, conversation="default:generic:default:ben") as events:
            client.post("/v1/messages", json=[HI, {**HI, "conversation": "ben"}])
            assert next(events)[1]["conversationKey"] == "default:generic:default:ben"
        assert client.get("/v1/events", params={"conversation": "ben"}).status_code == 400
        assert client.get("/v1/events", params={"key": "secret"}).status_code == 400


def test_a_frame() -> None:
    """Numbered, named, and on one line whatever a reply holds."""
    event = TurnAnswered(
        at=1_700_000_000_250, key=ConversationKey.of("ana"), turn_id="turn_1", attempt=1, replies=("a\n\nb",)
    )
    lines = frame(event, 7).decode().split("\n")
    assert lines[:2] == ["id: 7", "event: answered"]
    assert json.loads(lines[2].removeprefix("data: ")) == {
        "at": "2023-11-14T22:13:20.250Z",
        "conversationKey": "default:generic:default:ana",
        "turnId": "turn_1",
        "attempt": 1,
        "replies": ["a\n\nb"],
    }
    assert lines[3:] == ["", ""]


def test_a_quiet_stream_has_a_heartbeat() -> None:
    """By the clock that everything goes by."""
    clock = VirtualClock()
    with (
        serving(TurnTake("memory://", role="accept", clock=clock)) as server,
        httpx2.stream("GET", f"{server.url}/v1/events", timeout=20) as response,
    ):
        lines = response.iter_lines()
        assert next(lines) == ": watching"
        server.ask(clock.advance(15_000))
        assert [next(lines), next(lines)] == ["", ": still here"]


def test_watchers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is asked to come back; a place that is left is free again."""
    monkeypatch.setattr(stream, "MAX_WATCHERS", 2)
    with talking(TurnTake("memory://", role="accept")) as client, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(watching(client))
        refused = client.get("/v1/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")


def test_a_watcher_who_left_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is free once its connection is gone."""
    monkeypatch.setattr(stream, "MAX_WATCHERS", 1)
    with talking(TurnTake("memory://", role="accept")) as client:
        with watching(client):
            assert client.get("/v1/events").status_code == 503
        statuses = iter(lambda: client.stream("GET", "/v1/events").__enter__().status_code, 200)
        assert all(status == 503 for status in statuses)


def test_a_slow_watcher_holds_nobody_up() -> None:
    """Thousands of events that nobody reads; messages are still taken."""
    turns = TurnTake("memory://", rules=Rules(silence_ms=30_000, max_messages=100_000, capacity=100_000), role="accept")
    with talking(turns) as client, watching(client) as events:
        for batch in range(30):
            items = [{**HI, "id": f"{batch}-{n}"} for n in range(100)]
            assert client.post("/v1/messages", json=items).status_code == 202
        assert next(events)[0] == "buffered"


def test_streams_end_when_the_server_stops() -> None:
    """A watcher does not keep it from stopping."""
    with ExitStack() as stack:
        with serving(TurnTake("memory://", role="accept")) as server:
            response = stack.enter_context(httpx2.stream("GET", f"{server.url}/v1/events", timeout=20))
            lines = response.iter_lines()
            assert next(lines).startswith(":")
        assert list(told(lines)) == []


async def test_streams_end_with_the_life_of_the_app() -> None:
    """Whoever runs the app in a server of their own need not know of them."""
    sent: asyncio.Queue[Message] = asyncio.Queue()
    app = TurnTake("memory://", role="accept").asgi()
    scope = {"type": "http", "method": "GET", "path": "/v1/events", "query_string": b"", "headers": []}
    async with app.router.lifespan_context(app):
        watching = asyncio.create_task(app(scope, asyncio.Event().wait, sent.put))  # type: ignore[arg-type]
        while (await sent.get())["type"] != "http.response.body":
            continue
    await asyncio.wait_for(watching, 20)
