"""/v1/dead-letters: read, retry, discard."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from harness.servers import Echo, talking, until, watching
from turntake import GiveUp, Rules, Turn, TurnTake
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


def letters(client: httpx2.Client) -> list[str]:
    return [each["conversationKey"].rpartition(":")[2] for each in client.get("/v1/dead-letters").json()["deadLetters"]]


def retry_all(client: httpx2.Client, **body: object) -> int:
    """How many were retried, in pages of two, as the answers say how to go on."""
    retried: int = 0
    while True:
        page = client.post("/v1/dead-letters/retry", json={"limit": 2, **body})
        assert page.status_code == 202, page.text
        retried += int(page.json()["retried"])
        body |= {"cursor": page.json()["cursor"], "before": page.json()["before"]}
        if page.json()["cursor"] is None:
            return retried


def test_several_are_retried_page_by_page(client: httpx2.Client) -> None:
    """Each is answered, and none is left."""
    for name in ("ana", "bob", "cid", "dan", "eve"):
        letter(client, name)
    with watching(client) as events:
        assert retry_all(client) == 5
        assert {until(events, "answered")["conversationKey"].rpartition(":")[2] for _ in range(5)} == {
            "ana",
            "bob",
            "cid",
            "dan",
            "eve",
        }
    assert letters(client) == []
    assert retry_all(client) == 0


def test_those_retried_are_chosen_by_time_and_reason(client: httpx2.Client) -> None:
    for name in ("ana", "bob"):
        letter(client, name)
    assert retry_all(client, reason="expired") == 0
    assert retry_all(client, since="2100-01-01T00:00:00Z") == 0
    assert retry_all(client, before="2001-01-01T00:00:00Z") == 0
    assert letters(client) == ["bob", "ana"]
    assert retry_all(client, reason="By Order", since="2001-01-01T00:00:00Z", before="2100-01-01T00:00:00Z") == 2


def test_what_fails_again_is_not_retried_twice() -> None:
    """Else an agent that is still broken would be called without end."""
    calls: list[str] = []

    async def broken(turn: Turn) -> str:
        calls.append(turn.id)
        raise GiveUp("still broken")

    turns = TurnTake("memory://", rules=Rules(silence_ms=0, typing_inference_ms=0), agent=broken)
    with talking(turns) as client, watching(client) as events:
        for name in ("ana", "bob", "cid"):
            client.post("/v1/messages", json={"conversation": name, "id": "1", "text": "hi"})
            until(events, "dead-lettered")
        first = client.post("/v1/dead-letters/retry", json={"limit": 1}).json()
        until(events, "dead-lettered")
        assert first["retried"] == 1
        # From the beginning once more: the one that died again is later than `before`.
        assert retry_all(client, before=first["before"]) == 2
        for _ in range(2):
            until(events, "dead-lettered")
    assert len(calls) == 6


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"since": "yesterday"}, "`since` is not an instant; write it like 2026-11-15T09:30:00.250Z."),
        ({"before": "2026-11-15"}, "`before` is not an instant"),
        ({"cursor": "x"}, "This cursor is not one that a listing gave"),
        ({"all": True}, "unknown field `all`"),
    ],
)
def test_a_choice_that_means_nothing_is_refused(client: httpx2.Client, body: dict[str, object], says: str) -> None:
    refused = client.post("/v1/dead-letters/retry", json=body)
    assert refused.status_code == 400
    assert says in refused.json()["detail"]
