"""`/v1/keys`, and what keys with scopes and tenants open; completion tokens."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from harness.servers import Later, calling, talking
from turntake import ConversationKey, Rules, StoreUnavailable, TurnTake
from turntake.accept.caller import has_replies
from turntake.buffer.document_watch import LOOK_EVERY_MS, DocumentWatch
from turntake.buffer.memory import MemoryStore
from turntake.http.routes import ENDPOINTS
from turntake.rules.api_keys import ANYBODY, EVERY_SCOPE
from turntake.testing.clock import VirtualClock

OWNER = "the-key-of-whoever-runs-this"
HI = {"conversation": "ana", "id": "1", "text": "hi"}
KEYED = [endpoint for endpoint in ENDPOINTS if endpoint.access == "key"]


@asynccontextmanager
async def served(turns: TurnTake | None = None, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Calls as its owner unless another key is sent."""
    turns = turns or accepting()
    async with turns, calling(turns.asgi(**{"api_keys": [OWNER]} | options)) as client:
        client.headers["X-API-Key"] = OWNER
        yield client


def accepting() -> TurnTake:
    return TurnTake("memory://", rules=Rules(silence_ms=30_000), role="accept")


async def made(client: httpx2.AsyncClient, *scopes: str, tenants: list[str] | None = None) -> dict[str, str]:
    """The header of a new key."""
    response = await client.post("/v1/keys", json={"name": "crm", "scopes": scopes, "tenants": tenants})
    assert response.status_code == 201, response.text
    return {"X-API-Key": response.json()["key"]}


async def test_a_key_is_made_shown_once_listed_and_revoked() -> None:
    async with served() as client:
        asked = {"name": "crm", "scopes": ["orders", "messages:write"], "tenants": ["acme"]}
        answer = await client.post("/v1/keys", json=asked)
        key = answer.json()
        written = key.pop("key")
        assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
        assert (key["name"], key["scopes"], key["tenants"]) == ("crm", ["messages:write", "orders"], ["acme"])
        listing = await client.get("/v1/keys")
        assert listing.json() == {"keys": [key]}
        assert written[4:16] not in listing.text
        assert (await client.post("/v1/messages", json=HI, headers={"X-API-Key": written})).status_code == 202
        assert (await client.delete(f"/v1/keys/{key['id']}")).status_code == 204
        revoked = await client.post("/v1/messages", json=HI, headers={"X-API-Key": written})
        assert (revoked.status_code, "unknown or was revoked" in revoked.json()["detail"]) == (401, True)
        assert (await client.get("/v1/keys")).json()["keys"][0]["revokedAt"] is not None
        assert (await client.delete("/v1/keys/nobody")).status_code == 404


@pytest.mark.parametrize("endpoint", KEYED, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
async def test_without_its_scope_an_endpoint_refuses_and_names_it(endpoint: Any) -> None:
    """A key with every other scope is not enough; with this one alone it is not refused for that."""
    path = endpoint.path.replace("{key}", "default:generic:default:ana").replace("{turnId}", "x").replace("{id}", "x")
    async with served() as client:
        lacking = await made(client, *(EVERY_SCOPE - {endpoint.scope}))
        refused = await client.request(endpoint.method, path, headers=lacking)
        assert refused.status_code == 403
        assert f"`{endpoint.scope}`" in refused.json()["detail"]
        if endpoint.path != "/v1/events":
            enough = await made(client, endpoint.scope)
            assert (await client.request(endpoint.method, path, headers=enough)).status_code not in (401, 403)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "crm"},
        {"name": "crm", "scopes": []},
        {"name": "crm", "scopes": ["everything"]},
        {"name": " ", "scopes": ["orders"]},
        {"name": "crm", "scopes": ["orders"], "tenants": []},
        {"name": "crm", "scopes": ["orders"], "tenants": ["a\x07"]},
        {"name": "crm", "scopes": ["orders"], "key": "mine"},
    ],
)
async def test_a_key_that_cannot_be_is_refused(body: dict[str, Any]) -> None:
    async with served() as client:
        assert (await client.post("/v1/keys", json=body)).status_code == 400
        assert (await client.get("/v1/keys")).json() == {"keys": []}


async def test_a_scope_that_does_not_exist_is_answered_with_those_that_do() -> None:
    async with served() as client:
        refused = await client.post("/v1/keys", json={"name": "crm", "scopes": ["orders", "rulez"]})
        assert "Invalid enum value 'rulez'; allowed are '" in refused.json()["detail"]
        assert "'messages:write'" in refused.json()["detail"]


async def test_a_tenants_key_makes_and_knows_keys_of_its_own_tenants() -> None:
    """None that may do more, and it cannot find out about others'."""
    async with served() as client:
        acme = await made(client, "admin", "orders", tenants=["acme"])
        others = await client.post("/v1/keys", json={"name": "o", "scopes": ["orders"], "tenants": ["acme", "globex"]})
        ask: dict[str, Any] = {"name": "desk", "scopes": ["orders"], "tenants": ["acme"]}
        assert (await client.post("/v1/keys", json=ask, headers=acme)).status_code == 201
        for more in (
            {"scopes": ["letters"]},
            {"tenants": ["globex"]},
            {"tenants": ["acme", "globex"]},
            {"tenants": None},
        ):
            refused = await client.post("/v1/keys", json=ask | more, headers=acme)
            assert (refused.status_code, "may do more than itself" in refused.json()["detail"]) == (403, True)
        assert [key["name"] for key in (await client.get("/v1/keys", headers=acme)).json()["keys"]] == ["desk", "crm"]
        assert (await client.delete(f"/v1/keys/{others.json()['id']}", headers=acme)).status_code == 404


async def test_the_tenant_of_a_key_overrides_the_body() -> None:
    async with served() as client:
        acme = await made(client, "messages:write", tenants=["acme"])
        for named in ({}, {"tenant": "globex"}, {"tenant": "acme"}):
            body = HI | named
            for sent in (body, [body]):
                receipt = (await client.post("/v1/messages", json=sent, headers=acme)).json()
                receipt = receipt[0] if isinstance(receipt, list) else receipt
                assert receipt["conversationKey"] == "acme:generic:default:ana"
            typing = {"conversation": "ana", "kind": "typing", **named}
            assert (await client.post("/v1/activity", json=typing, headers=acme)).json()["dueAt"] is not None


async def test_a_key_for_several_tenants_must_be_told_which() -> None:
    async with served() as client:
        two = await made(client, "messages:write", tenants=["acme", "globex"])
        receipt = await client.post("/v1/messages", json=HI | {"tenant": "globex"}, headers=two)
        assert receipt.json()["conversationKey"] == "globex:generic:default:ana"
        for named in ({}, {"tenant": "initech"}):
            refused = await client.post("/v1/messages", json=HI | named, headers=two)
            assert refused.status_code == 403
            assert "`acme`, `globex`" in refused.json()["detail"]


async def test_writing_as_a_person_on_a_platform_needs_a_scope_of_its_own() -> None:
    """The answer would go to that person. A chat of one's own is no platform, and neither is a name that nobody has."""
    async with served() as client:
        writer, player = await made(client, "messages:write"), await made(client, "messages:write", "impersonate")
        for path, body in (("/v1/messages", HI), ("/v1/activity", {"conversation": "ana", "kind": "typing"})):
            refused = await client.post(path, json=body | {"channel": "whatsapp"}, headers=writer)
            assert (refused.status_code, "`impersonate`" in refused.json()["detail"]) == (403, True)
            assert (await client.post(path, json=body | {"channel": "whatsapp"}, headers=player)).status_code == 202
            for channel in ("", "generic", "my-own-chat"):
                answer = await client.post(path, json=body | {"channel": channel}, headers=writer)
                assert answer.status_code == 202
        assert (await client.post("/v1/messages", json=[HI | {"channel": "slack"}], headers=writer)).status_code == 403
    assert [name for name in ("discord", "twilio", "generic", "nobody") if has_replies(name)] == ["discord", "twilio"]


async def test_from_the_first_key_on_this_machine_needs_one_too() -> None:
    """Also when it is revoked: to take a key away opens nothing."""
    async with served(api_keys=[], made_key="the-made-key") as client:
        del client.headers["X-API-Key"]
        assert (await client.get("/v1/conversations")).status_code == 200
        key = (await client.post("/v1/keys", json={"name": "crm", "scopes": ["orders"]})).json()
        for _ in range(2):
            assert (await client.get("/v1/conversations")).status_code == 401
            assert (await client.get("/v1/conversations", headers={"X-API-Key": "the-made-key"})).status_code == 200
            assert (await client.get("/")).status_code == 200
            await client.delete(f"/v1/keys/{key['id']}", headers={"X-API-Key": "the-made-key"})


async def test_a_key_opens_a_server_that_others_reach() -> None:
    async with served(api_keys=[], made_key="the-made-key", public_url="https://bot.example") as client:
        client.headers["X-API-Key"] = "the-made-key"
        reader = await made(client, "conversations:read")
        strangers = {"Host": "bot.example", "X-Forwarded-For": "192.0.2.7"}
        assert (await client.get("/v1/conversations", headers=strangers | reader)).status_code == 200
        assert (await client.get("/v1/conversations", headers=strangers | {"X-API-Key": ""})).status_code == 401


async def test_every_process_knows_of_a_change_within_two_seconds() -> None:
    """Two that share a store: a key made at one opens the other, and closes it again once it is revoked."""
    clock = VirtualClock()
    store = MemoryStore(clock)
    here, there = (TurnTake(store, role="accept", clock=clock) for _ in range(2))
    async with served(here) as client, served(there) as other:
        key = await made(client, "conversations:read")
        assert (await other.get("/v1/conversations", headers=key)).status_code == 401
        await clock.advance(2_000)
        assert (await other.get("/v1/conversations", headers=key)).status_code == 200
        (listed,) = (await client.get("/v1/keys")).json()["keys"]
        await client.delete(f"/v1/keys/{listed['id']}")
        await clock.advance(2_000)
        assert (await other.get("/v1/conversations", headers=key)).status_code == 401


def test_a_stream_ends_when_its_key_is_revoked() -> None:
    """It shows nothing that happens from then on."""
    turns = accepting()
    with talking(turns) as client:
        asked = {"name": "wall", "scopes": ["events"], "tenants": ["acme"]}
        key = client.post("/v1/keys", json=asked).json()
        with client.stream("GET", "/v1/events", headers={"X-API-Key": key["key"]}) as stream:
            lines = stream.iter_lines()
            for number, tenant in enumerate(("globex", "acme")):
                client.post("/v1/messages", json=HI | {"tenant": tenant, "id": str(number)})
            (buffered,) = itertools.islice((line for line in lines if line.startswith("data:")), 1)
            assert '"acme:generic:default:ana"' in buffered
            client.delete(f"/v1/keys/{key['id']}")
            client.post("/v1/messages", json=HI | {"tenant": "acme", "id": "2"})
            assert "".join(lines) == ""


async def test_two_that_make_keys_at_once_lose_none() -> None:
    store = MemoryStore(VirtualClock())
    here, there = (TurnTake(store, role="accept", clock=store.clock) for _ in range(2))
    async with here, there:
        await asyncio.gather(*(turns.keys.make(ANYBODY, "k", ["orders"]) for turns in (here, there) for _ in range(5)))
        await here.keys.refresh()
        assert len(here.keys.list(ANYBODY)) == 10


async def test_whoever_was_beaten_to_a_change_makes_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the other one wrote: neither key is lost."""
    store = MemoryStore(VirtualClock())
    here, there = (TurnTake(store, role="accept", clock=store.clock) for _ in range(2))
    swap = store.documents.swap

    async def beaten(name: str, version: int, body: bytes) -> bool:
        monkeypatch.undo()
        await there.keys.make(ANYBODY, "quicker", ["orders"])
        return await swap(name, version, body)

    async with here, there:
        monkeypatch.setattr(store.documents, "swap", beaten)
        await here.keys.make(ANYBODY, "slower", ["orders"])
        await there.keys.refresh()
        assert [key.name for key in there.keys.list(ANYBODY)] == ["slower", "quicker"]


async def test_a_key_is_revoked_by_a_process_that_did_not_know_of_it_yet() -> None:
    store = MemoryStore(VirtualClock())
    here, there = (TurnTake(store, role="accept", clock=store.clock) for _ in range(2))
    async with here, there:
        key, _ = await here.keys.make(ANYBODY, "crm", ["orders"])
        assert await there.keys.revoke(ANYBODY, key.id) is not None
        async with calling(here.asgi(api_keys=[OWNER])) as client:
            (listed,) = (await client.get("/v1/keys", headers={"X-API-Key": OWNER})).json()["keys"]
        assert listed["revokedAt"] is not None


async def test_keys_that_are_set_count_without_blanks_and_instead_of_the_made_one() -> None:
    async with served(api_keys=[f" {OWNER}\n"], made_key="the-made-key") as client:
        assert (await client.get("/v1/conversations")).status_code == 200
        made_one = await client.get("/v1/conversations", headers={"X-API-Key": "the-made-key"})
        assert made_one.status_code == 401


async def test_nothing_is_known_of_another_store_than_the_one_that_is_open() -> None:
    """Neither who may come in nor with which secret tokens are made."""
    turns, away = accepting(), MemoryStore(VirtualClock())
    assert turns.keys.token_for("turn_1") == ""
    async with turns:
        assert not turns.keys.is_unreadable
    turns.keys.open(away, DocumentWatch(away))
    assert turns.keys.is_unreadable


async def test_a_request_asks_no_store_for_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is checked with what the process remembers."""
    turns = accepting()
    async with served(turns) as client:
        key = await made(client, "messages:write", tenants=["acme"])
        calls: list[str] = []
        for name in ("read", "versions", "swap"):
            monkeypatch.setattr(turns.store.documents, name, lambda *_, name=name: calls.append(name))
        assert (await client.post("/v1/messages", json=HI, headers=key)).status_code == 202
        assert calls == []


async def test_while_the_keys_cannot_be_read_nobody_comes_in_without_a_set_one() -> None:
    """Nobody knows then whether one is needed: 503, and not what lies behind the door."""
    clock = VirtualClock()
    store = MemoryStore(clock)
    answering = store.documents.versions

    async def silent(names: object) -> list[int]:
        raise StoreUnavailable("away")

    store.documents.versions = silent  # type: ignore[method-assign]
    turns = TurnTake(store, role="accept", clock=clock)
    async with served(turns, api_keys=[], made_key="the-made-key") as client:
        for headers in ({"X-API-Key": ""}, {"X-API-Key": "unknown"}):
            refused = await client.get("/v1/conversations", headers=headers)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert (await client.get("/v1/conversations", headers={"X-API-Key": "the-made-key"})).status_code == 200
        stranger = {"X-API-Key": "", "X-Forwarded-For": "192.0.2.7"}
        assert (await client.get("/healthz", headers=stranger)).status_code == 403, "public, and for this machine only"
        store.documents.versions = answering  # type: ignore[method-assign]
        await clock.advance(LOOK_EVERY_MS)
        assert (await client.get("/v1/conversations", headers={"X-API-Key": ""})).status_code == 200


@asynccontextmanager
async def two_open_turns() -> AsyncIterator[tuple[httpx2.AsyncClient, list[str], list[dict[str, str]]]]:
    """A server that others reach, with two turns that wait for their agents: their ids, and their tokens as headers."""
    clock = VirtualClock()
    turns = TurnTake(MemoryStore(clock), rules=Rules(silence_ms=1), agent=Later(), clock=clock)
    async with served(turns, api_keys=[], public_url="https://bot.example") as client:
        del client.headers["X-API-Key"]
        for name in ("ana", "bob"):
            await turns.receive("hi", conversation=name, id="1")
        await clock.advance(5_000)
        records = [await turns.store.history.turns(ConversationKey.of(name), 1) for name in ("ana", "bob")]
        ids = [record.id for (record,) in records]
        yield client, ids, [{"Authorization": f"Bearer {turns.keys.token_for(id)}"} for id in ids]


async def test_a_completion_token_ends_its_own_turn() -> None:
    """Without any key, also at a server that others reach."""
    async with two_open_turns() as (client, (ana, bob), (token, other)):
        assert (await client.post(f"/v1/turns/{ana}/extend", headers=token)).status_code == 200
        assert (await client.post(f"/v1/turns/{bob}/fail", json={"error": "x"}, headers=other)).status_code == 200
        done = await client.post(f"/v1/turns/{ana}/complete", json={"reply": "hello"}, headers=token)
        assert (done.status_code, done.json()["replies"]) == (200, ["hello"])


async def test_a_completion_token_is_good_for_nothing_else() -> None:
    async with two_open_turns() as (client, (ana, bob), (token, _)):
        for order in ("complete", "extend"):
            assert (await client.post(f"/v1/turns/{bob}/{order}", headers=token)).status_code == 404
        assert (await client.post(f"/v1/turns/{bob}/fail", json={"error": "x"}, headers=token)).status_code == 404
        assert (await client.post(f"/v1/turns/{ana}/complete")).status_code == 401
        forged = {"Authorization": token["Authorization"].replace(ana, bob)}
        assert (await client.post(f"/v1/turns/{bob}/complete", headers=forged)).status_code == 401
    async with served() as client:
        turns = client._transport.app.state.turns  # type: ignore[attr-defined]
        token = {"X-API-Key": turns.keys.token_for("turn_1")}
        for endpoint in KEYED:
            if not endpoint.takes_token:
                path = endpoint.path.replace("{turnId}", "turn_1")
                refused = await client.request(endpoint.method, path, headers=token)
                assert (refused.status_code, "completion token" in refused.json()["detail"]) == (403, True)
