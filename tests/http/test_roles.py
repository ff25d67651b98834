"""Roles: who accepts does not answer, who works takes no messages, and both show and order everything else."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from harness.servers import Later, talking, until, watching
from turntake import Rules, TurnTake

HI = {"conversation": "ana", "id": "1", "text": "hi"}
PATIENT = Rules(silence_ms=600_000, max_wait_ms=600_000)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[httpx2.Client, httpx2.Client]]:
    """A service that accepts and one that works, on the same file; the worker leaves answers to the API."""
    store = f"sqlite:///{tmp_path}/t.db"
    with (
        talking(TurnTake(store, rules=PATIENT, role="accept")) as accepting,
        talking(TurnTake(store, rules=PATIENT, role="work", agent=Later())) as working,
    ):
        yield accepting, working


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/messages", HI), ("/v1/activity", {"conversation": "ana", "kind": "typing"})]
)
def test_a_worker_takes_no_messages(both: tuple[httpx2.Client, httpx2.Client], path: str, body: object) -> None:
    """It says which role runs here, where to go, and that trying again is right; nothing was stored."""
    _, working = both
    refused = working.post(path, json=body)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.headers["content-type"] == "application/problem+json"
    assert "has the role `work`" in refused.json()["detail"]
    assert "with the role `accept` or `all`" in refused.json()["detail"]
    assert working.get("/v1/conversations").json()["conversations"] == []


def test_a_worker_asks_strangers_for_their_key_first() -> None:
    turns = TurnTake("memory://", role="work", agent=Later())
    with talking(turns, api_keys=["sesame"]) as client:
        assert client.post("/v1/messages", json=HI).status_code == 401
        assert client.post("/v1/messages", json=HI, headers={"X-API-Key": "sesame"}).status_code == 503


def test_one_accepts_and_the_other_answers(both: tuple[httpx2.Client, httpx2.Client]) -> None:
    """Reads, orders and reports from outside work at either."""
    accepting, working = both
    assert [client.get("/readyz").json()["role"] for client in both] == ["accept", "work"]
    key = accepting.post("/v1/messages", json=HI).json()["conversationKey"]
    with watching(working) as events:
        for client in both:
            assert client.get(f"/v1/conversations/{key}").json()["status"] == "collecting"
            assert client.post(f"/v1/conversations/{key}/hold").status_code == 200
        assert working.post(f"/v1/conversations/{key}/flush").status_code == 200
        turn_id = until(events, "claimed")["turnId"]
    for client in both:
        assert client.get(f"/v1/turns/{turn_id}").json()["status"] == "answering"
        assert client.post(f"/v1/turns/{turn_id}/extend").status_code == 200
        assert client.get("/v1/dead-letters").status_code == 200
    assert accepting.post(f"/v1/turns/{turn_id}/complete", json={"reply": "hello"}).status_code == 200
    assert working.get(f"/v1/turns/{turn_id}").json()["replies"] == ["hello"]


def test_who_accepts_never_claims(tmp_path: Path) -> None:
    """Even with an agent at hand and something due."""
    turns = TurnTake(f"sqlite:///{tmp_path}/t.db", rules=Rules(enabled=False), role="accept", agent=Later())
    with talking(turns) as client:
        key = client.post("/v1/messages", json=HI).json()["conversationKey"]
        assert client.post(f"/v1/conversations/{key}/flush").status_code == 200
        found = client.get(f"/v1/conversations/{key}").json()
    assert (found["status"], found["turn"]) == ("collecting", None)
    assert turns._worker is None


async def test_a_handler_of_a_worker_may_write_to_another_conversation() -> None:
    """The role closes the door for requests; what a program does on purpose is its own affair."""
    async with TurnTake("memory://", rules=PATIENT, role="work", agent=Later()) as turns:
        assert (await turns.receive("hi", conversation="ana", id="1")).status == "buffered"
