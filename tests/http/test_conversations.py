"""/v1/conversations: who waits, why, and orders."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.servers import Echo, Later, talking, until, watching
from turntake import ConversationKey, GiveUp, Rules, Turn, TurnTake
from turntake.http.why import why
from turntake.rules.arriving import stop
from turntake.rules.conversation import Buffer, Conversation, Progress, SealedTurn
from turntake.rules.deadline import REASONS, Deadline

PATIENT = Rules(silence_ms=60_000, typing_inference_ms=60_000, max_wait_ms=600_000)
ANA = "default:generic:default:ana"


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with talking(TurnTake("memory://", rules=PATIENT, agent=Later())) as client:
        yield client


def say(client: httpx2.Client, *texts: str, **parts: str) -> str:
    for text in texts:
        body = {"conversation": "ana", "id": text, "text": text, **parts}
        key: str = client.post("/v1/messages", json=body).json()["conversationKey"]
    return key


def order(client: httpx2.Client, name: str, body: Any = None, key: str = ANA) -> httpx2.Response:
    return client.post(f"/v1/conversations/{key}/{name}", json=body)


def test_what_waits_and_why(client: httpx2.Client) -> None:
    """The buffered messages, the deadline, each decision, and one sentence to read."""
    say(client, "hi", "there")
    view = client.get(f"/v1/conversations/{ANA}").json()
    assert (view["status"], view["reason"], view["turn"], view["turns"]) == ("collecting", "silence", None, [])
    assert [message["text"] for message in view["messages"]] == ["hi", "there"]
    assert [decision["reason"] for decision in view["decisions"]] == ["silence", "silence"]
    assert view["decisions"][-1]["dueAt"] == view["dueAt"]
    assert view["why"].startswith("2 messages wait for ")


def test_the_open_turn_and_what_came_since(client: httpx2.Client) -> None:
    """What the agent has is apart from what waits behind it."""
    with watching(client) as events:
        say(client, "hi")
        order(client, "flush")
        turn_id = until(events, "claimed")["turnId"]
        say(client, "more")
    view = client.get(f"/v1/conversations/{ANA}").json()
    assert (view["status"], view["turnId"], view["messageCount"]) == ("answering", turn_id, 1)
    assert [message["text"] for message in view["messages"]] == ["more"]
    turn = view["turn"]
    assert [message["text"] for message in turn["messages"]] == ["hi"]
    assert (turn["turnId"], turn["attempt"], turn["reason"], turn["retryAt"]) == (turn_id, 1, "flushed", None)
    assert turn["leaseUntilAt"] > turn["claimedAt"]


def test_past_turns_are_listed() -> None:
    """The latest first, with their answers."""
    with talking(TurnTake("memory://", rules=PATIENT, agent=Echo())) as client, watching(client) as events:
        for text in ("one", "two"):
            say(client, text)
            order(client, "flush")
            until(events, "answered")
        view = client.get(f"/v1/conversations/{ANA}").json()
    assert (view["status"], view["why"]) == ("idle", "Nothing waits.")
    assert sorted(turn["replies"] for turn in view["turns"]) == [["one"], ["two"]]
    assert {turn["status"] for turn in view["turns"]} == {"answered"}


def test_hold_moves_the_deadline(client: httpx2.Client) -> None:
    """By a minute, or by as long as the order says."""
    say(client, "hi")
    due = client.get(f"/v1/conversations/{ANA}").json()["dueAt"]
    held = order(client, "hold", {"forMs": 3_600_000})
    assert held.status_code == 200
    assert (held.json()["reason"], held.json()["dueAt"] > due) == ("held", True)
    assert client.post(f"/v1/conversations/{ANA}/hold").status_code == 200


def test_an_order_to_clear_makes_a_dead_letter(client: httpx2.Client) -> None:
    """Even an order to forget loses nothing silently."""
    say(client, "hi")
    cleared = order(client, "clear")
    assert (cleared.status_code, cleared.json()["status"], cleared.json()["messages"]) == (200, "idle", [])
    (letter,) = client.get("/v1/dead-letters").json()["deadLetters"]
    assert (letter["reason"], letter["conversationKey"]) == ("cleared by order", ANA)
    turn = client.get(f"/v1/turns/{letter['id']}").json()
    assert (turn["status"], turn["attempt"], turn["latenessMs"]) == ("cleared", 0, None)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("hold", {"forMs": 0}),
        ("hold", {"forMs": 86_400_001}),
        ("hold", {"for": 5}),
        ("hold", []),
        ("flush", {"now": True}),
        ("clear", "all"),
    ],
)
def test_bad_orders_are_refused(client: httpx2.Client, name: str, body: Any) -> None:
    """And change nothing."""
    say(client, "hi")
    assert order(client, name, body).status_code == 400
    assert client.get(f"/v1/conversations/{ANA}").json()["status"] == "collecting"


@pytest.mark.parametrize("name", ["", "/flush", "/hold", "/clear"])
def test_unknown_and_malformed_keys(client: httpx2.Client, name: str) -> None:
    """Nothing known under a key is 404; what is no key is 400."""
    method = "POST" if name else "GET"
    unknown = client.request(method, f"/v1/conversations/default:generic:default:nobody{name}")
    assert unknown.status_code == 404
    for key in (
        "nobody",
        "a:b:c",
        "a:b:c:",
        "a:b:c:~zz",
        "a:b:c:~FF",
        "a:b:c:d:e:f",
        "a:b:c:%C3%A4",
        "a:b:c:~41",
        "%FF",
    ):
        malformed = client.request(method, f"/v1/conversations/{key}{name}")
        assert (key, malformed.status_code) == (key, 400)
        assert malformed.headers["content-type"] == "application/problem+json"


def test_what_comes_later_is_not_there_yet(client: httpx2.Client) -> None:
    """Handing off, resuming and erasing are refused cleanly."""
    say(client, "hi")
    assert order(client, "handoff").status_code == 404
    assert order(client, "resume").status_code == 404
    refused = client.delete(f"/v1/conversations/{ANA}")
    assert (refused.status_code, refused.headers["content-type"]) == (405, "application/problem+json")


def test_listing_filters_and_pages(client: httpx2.Client) -> None:
    """Page by page, each conversation once."""
    for name in ("ana", "ben", "cleo"):
        say(client, "hi", conversation=name, tenant="acme", channel="whatsapp")
    say(client, "hi", conversation="dora")

    def found(**params: Any) -> list[str]:
        listed = client.get("/v1/conversations", params=params).json()["conversations"]
        return [conversation["conversationId"] for conversation in listed]

    assert found() == ["ana", "ben", "cleo", "dora"]
    assert found(tenant="acme", channel="whatsapp", status="collecting") == ["ana", "ben", "cleo"]
    assert found(status="idle") == []
    names, cursor = [], ""
    while cursor is not None:
        page = client.get("/v1/conversations", params={"limit": 2, "cursor": cursor}).json()
        names += [conversation["conversationId"] for conversation in page["conversations"]]
        cursor = page["cursor"]
    assert names == ["ana", "ben", "cleo", "dora"]


@pytest.mark.parametrize(
    "params",
    [
        {"status": "asleep"},
        {"limit": "0"},
        {"limit": "501"},
        {"limit": "many"},
        {"cursor": "x"},
        {"cursor": "due-1"},
        {"cursor": "9" * 4_500},
        {"page": "2"},
    ],
)
def test_bad_listings_are_refused(client: httpx2.Client, params: dict[str, str]) -> None:
    """What is no filter, no number and no cursor."""
    assert client.get("/v1/conversations", params=params).status_code == 400


@pytest.mark.parametrize("cursor", ["due-1", "due-x-1", "due-9-" + "9" * 30, "idle-x"])
def test_bad_cursors_are_refused_by_sqlite_too(cursor: str, tmp_path: Path) -> None:
    """Each store has cursors of its own."""
    with talking(TurnTake(f"sqlite:///{tmp_path}/t.db", role="accept")) as client:
        assert client.get("/v1/conversations", params={"cursor": cursor}).status_code == 400


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_reads_as_a_sentence(reason: Any) -> None:
    """Before and after the deadline."""
    ended = "the wait for the person ended by:"
    due = Deadline(2_700, reason)
    waiting = Conversation(next_seq=3, buffer=Buffer(1, 0, 0, due, due, ()))
    assert why(waiting, 0) == f"2 messages wait for 2.7 s more: {REASONS[due.reason]} ({reason})."
    assert why(waiting, 3_000) == f"2 messages wait for a worker, due 0.3 s ago; {ended} {reason}."


def test_an_open_turn_reads_as_a_sentence() -> None:
    """Held, being sent, waiting for its next attempt, or left behind."""

    def said(now: int = 0, waiting: int = 0, **facts: Any) -> str:
        turn = SealedTurn("t", 1, 1, Deadline(0, "silence"), 0, 0, 5_000, (), **facts)
        buffer = Buffer(2, 0, 0, turn.due, turn.due, ()) if waiting else None
        return why(Conversation(next_seq=2 + waiting, turn=turn, buffer=buffer), now)

    assert said() == "Attempt 1: the agent has the turn, and the lease runs 5.0 s more."
    assert said(waiting=1).endswith("more. 1 message waits for the next turn.")
    assert said(progress=Progress(is_final=True)).startswith("Attempt 1: the answer is being sent")
    assert said(is_leased=False) == "Attempt 1 did not succeed; the next one is due in 5.0 s."
    assert said(now=6_000) == "Attempt 1 is over and the turn waits for a worker to take it again."


def test_a_stop_word_behind_an_answer_that_is_final_is_told() -> None:
    """It is no message that waits, so the count says nothing of it."""
    turn = SealedTurn("t", 1, 1, Deadline(0, "silence"), 0, 0, 5_000, (), is_committed=True)
    stopped = stop(Conversation(next_seq=2, turn=turn, epoch=1), ConversationKey.of("ada"), 10).conversation
    assert why(stopped, 10).endswith("more. A stop word waits behind it, and is the next turn.")


def test_a_conversation_with_the_longest_name_does_not_end_the_list() -> None:
    """The cursor holds its name, and must be taken as it was given."""
    turns = TurnTake("memory://", rules=Rules(silence_ms=600_000, max_wait_ms=600_000), role="accept")
    longest = dict.fromkeys(("conversation", "account", "tenant", "topic"), "😀" * 64)
    with talking(turns) as client:
        for number in range(3):
            body = longest | {"conversation": "😀" * 63 + f"{number:04}", "id": "1", "text": "hi"}
            assert client.post("/v1/messages", json=body).status_code == 202
        listed, cursor = [], ""
        while cursor is not None:
            page = client.get("/v1/conversations", params={"limit": 1, "cursor": cursor}).json()
            listed += page["conversations"]
            cursor = page["cursor"]
    assert len(listed) == 3


def test_an_id_that_no_turn_has_is_not_looked_for() -> None:
    """Stores keep what they looked for, and an address may be kilobytes long."""
    turns = TurnTake("memory://", role="accept")
    with talking(turns) as client:
        for path in ("/v1/turns/", "/v1/dead-letters/"):
            response = client.get(path + "x" * 65)
            assert response.status_code == 404
            assert "not the id of a turn" in response.json()["detail"]


def test_a_conversation_whose_turn_failed_says_so_until_somebody_writes() -> None:
    """With the times that a product shows; a list may ask for them."""

    async def refuse(turn: Turn) -> None:
        raise GiveUp("not in my language")

    with talking(TurnTake("memory://", rules=PATIENT, agent=refuse)) as client:
        with watching(client) as events:
            say(client, "hi")
            order(client, "flush")
            until(events, "dead-lettered")
        view = client.get(f"/v1/conversations/{ANA}").json()
        assert view["status"] == "failed"
        assert view["why"].endswith("it became a dead letter.")
        assert view["beganAt"] == view["lastMessageAt"] <= view["lastTurnAt"] == view["statusAt"]
        (listed,) = client.get("/v1/conversations", params={"status": "failed"}).json()["conversations"]
        assert listed["statusAt"] == view["statusAt"]
        assert client.get("/v1/conversations", params={"status": "idle"}).json()["conversations"] == []
        say(client, "again")
        view = client.get(f"/v1/conversations/{ANA}").json()
        assert (view["status"], view["statusAt"]) == ("collecting", view["lastMessageAt"])


def test_the_history_of_a_conversation_is_listed_page_by_page() -> None:
    """Each turn with its messages, reasons, attempts and answer, the latest first."""
    with talking(TurnTake("memory://", rules=Rules(enabled=False), agent=Echo())) as client:
        with watching(client) as events:
            for text in ("one", "two", "three"):
                say(client, text)
                until(events, "answered")
        path = f"/v1/conversations/{ANA}/turns"
        first = client.get(path, params={"limit": 2}).json()
        second = client.get(path, params={"limit": 2, "cursor": first["cursor"]}).json()
        turns = [*first["turns"], *second["turns"]]
        assert second["cursor"] is None
        assert [turn["text"] for turn in turns] == ["three", "two", "one"]
        assert all(turn["claimedAt"] <= turn["answeredAt"] <= turn["settledAt"] for turn in turns)
        assert {(turn["status"], turn["attempt"], turn["reason"], turn["failures"]) for turn in turns} == {
            ("answered", 1, "off switch", 0)
        }
        assert turns[0] == client.get(f"/v1/turns/{turns[0]['turnId']}").json()


def test_a_history_that_is_not_there(client: httpx2.Client) -> None:
    """Nobody's, an empty one, and cursors that were made up."""
    say(client, "hi")
    path = f"/v1/conversations/{ANA}/turns"
    assert client.get(path).json() == {"turns": [], "cursor": None}
    assert client.get("/v1/conversations/default:generic:default:nobody/turns").status_code == 404
    for cursor in ("x", "1", "2-1", "0-1", "1-2-3", f"1-{10**20}", "0--5", f"1--{10**20}"):
        assert client.get(path, params={"cursor": cursor}).status_code == 400
