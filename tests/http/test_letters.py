"""/v1/dead-letters: read, retry, discard."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from harness.servers import Echo, talking, until, watching
from turntake import Rules, TurnTake
from turntake.rules.conversation import Conversation

PATIENT = Rules(silence_ms=30_000)


@pytest.fixture(params=["memory", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[httpx2.Client]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/t.db"
    with talking(TurnTake(url, rules=PATIENT, agent=Echo())) as client:
        yield client


def letter(client: httpx2.Client, name: str = "ana") -> str:
    """The id of a dead letter of this conversation."""
    key = client.post("/v1/messages", json={"conversation": name, "id": "1", "text": "hi"}).json()["conversationKey"]
    client.post(f"/v1/conversations/{key}/clear")
    letter_id: str = client.get("/v1/dead-letters").json()["deadLetters"][0]["id"]
    return letter_id


def test_a_letter_has_its_messages(client: httpx2.Client) -> None:
    """And says why nobody answered them."""
    shown = client.get(f"/v1/dead-letters/{letter(client)}").json()
    assert (shown["reason"], shown["messageCount"], shown["attempts"]) == ("cleared by order", 1, 0)
    assert [message["text"] for message in shown["messages"]] == ["hi"]


def test_retrying_gets_it_answered(client: httpx2.Client) -> None:
    """Its messages wait again, due at once; the letter is gone."""
    letter_id = letter(client)
    with watching(client) as events:
        retried = client.post(f"/v1/dead-letters/{letter_id}/retry")
        assert retried.status_code == 202
        assert retried.json()["conversationKey"] == "default:generic:default:ana"
        assert until(events, "answered")["replies"] == ["hi"]
    assert client.post(f"/v1/dead-letters/{letter_id}/retry").status_code == 404


def test_who_retries_a_moment_after_another_is_told() -> None:
    """The letter was read, and was gone when its messages were to wait again."""

    class SlowTurns(TurnTake):
        async def retry_letter(self, letter_id: str) -> Conversation | None:
            await super().retry_letter(letter_id)
            return await super().retry_letter(letter_id)

    with talking(SlowTurns("memory://", rules=PATIENT, role="accept")) as client:
        refused = client.post(f"/v1/dead-letters/{letter(client)}/retry")
    assert refused.status_code == 404
    assert "retried or discarded already" in refused.json()["detail"]


def test_discarding(client: httpx2.Client) -> None:
    """Once; the turn stays in the history."""
    letter_id = letter(client)
    discarded = client.delete(f"/v1/dead-letters/{letter_id}")
    assert (discarded.status_code, discarded.content) == (204, b"")
    assert client.delete(f"/v1/dead-letters/{letter_id}").status_code == 404
    assert client.get("/v1/dead-letters").json() == {"deadLetters": [], "cursor": None}
    assert client.get(f"/v1/turns/{letter_id}").json()["status"] == "cleared"


def test_listing_pages(client: httpx2.Client) -> None:
    """The latest first, each once."""
    ids = [letter(client, name) for name in ("ana", "ben", "cleo")]
    first = client.get("/v1/dead-letters", params={"limit": 2}).json()
    rest = client.get("/v1/dead-letters", params={"limit": 2, "cursor": first["cursor"]}).json()
    assert {each["id"] for each in first["deadLetters"] + rest["deadLetters"]} == set(ids)
    assert (len(rest["deadLetters"]), rest["cursor"]) == (1, None)


def test_what_is_refused(client: httpx2.Client) -> None:
    """Unknown letters, bad cursors, other methods."""
    assert client.get("/v1/dead-letters/x").status_code == 404
    assert client.delete("/v1/dead-letters/x").status_code == 404
    assert client.post("/v1/dead-letters/x/retry").status_code == 404
    assert client.get("/v1/dead-letters", params={"cursor": "x"}).status_code == 400
    assert client.get("/v1/dead-letters", params={"limit": "x"}).status_code == 400
    refused = client.put("/v1/dead-letters/x")
    assert (refused.status_code, set(refused.headers["allow"].split(", "))) == (405, {"GET", "HEAD", "DELETE"})
