"""Keys of one tenant: what they cannot take from whoever runs the installation, and from its other tenants."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from harness.servers import Later, calling
from turntake import Rules, TurnTake
from turntake.accept.homes import Home
from turntake.buffer.memory import MemoryStore
from turntake.http import events
from turntake.rules import api_keys, live
from turntake.rules.api_keys import ANYBODY, EVERY_SCOPE
from turntake.rules.live import Said
from turntake.rules.scopes import RuleScope
from turntake.testing.clock import VirtualClock

OWNER = "the-key-of-whoever-runs-this"
HOMES = {("whatsapp", ""): Home("globex"), ("whatsapp", "desk"): Home("acme"), ("telegram", ""): Home(agent="sales")}
ACME = "/v1/rules/tenant/acme"


@pytest.fixture
async def turns() -> AsyncIterator[TurnTake]:
    clock = VirtualClock()
    rules = {"tenant": {"acme": {"tenant_messages_per_minute": 60}}}
    async with TurnTake(MemoryStore(clock), rules=rules, agent=Later(), clock=clock) as turns:
        yield turns


@pytest.fixture
async def owner(turns: TurnTake) -> AsyncIterator[httpx2.AsyncClient]:
    async with calling(turns.asgi(api_keys=[OWNER], homes=HOMES)) as client:
        client.headers["X-API-Key"] = OWNER
        yield client


@pytest.fixture
async def acme(turns: TurnTake) -> dict[str, str]:
    """The header of a key that may do everything, for one tenant."""
    _, written = await turns.keys.make(ANYBODY, "acme desk", EVERY_SCOPE, ["acme"])
    return {"X-API-Key": written}


LIMITS: list[dict[str, Any]] = [
    {"share": 10_000},
    {"tenantTurns": 0},
    {"tenantMessagesPerMinute": 0},
    {"silenceMs": 5, "tenantBytesPerMinute": 0},
]


@pytest.mark.parametrize("body", LIMITS, ids=lambda body: list(body)[-1])
async def test_a_tenant_cannot_set_its_own_limits(
    owner: httpx2.AsyncClient, acme: dict[str, str], body: dict[str, Any]
) -> None:
    """Else the share of all others would be what it leaves to them. It sets its other rules, and the owner sets all."""
    for path in (ACME, "/v1/rules/conversation/acme:generic:default:ana"):
        refused = await owner.put(path, json=body, headers=acme)
        assert refused.status_code in (400, 403), refused.text
    assert "limits a tenant" in (await owner.put(ACME, json=body, headers=acme)).json()["detail"]
    assert (await owner.get("/v1/rules/history")).json()["changes"] == []
    assert (await owner.put(ACME, json={"silenceMs": 5}, headers=acme)).status_code == 200
    assert (await owner.put(ACME, json=body)).status_code == 200


async def test_limits_of_a_tenant_stay_when_it_changes_or_deletes_its_rules(
    owner: httpx2.AsyncClient, acme: dict[str, str]
) -> None:
    """Also if it says what they are: that is how one rule of several is changed."""
    await owner.put(ACME, json={"share": 50, "silenceMs": 5})
    for body in ({"silenceMs": 6}, {"silenceMs": 6, "share": 50}):
        layer = await owner.put(ACME, json=body, headers=acme)
        assert layer.json()["rules"] == {"silenceMs": 6, "share": 50}
    assert (await owner.put(ACME, json={"share": 51}, headers=acme)).status_code == 403
    assert (await owner.delete(ACME, headers=acme)).status_code == 204
    assert (await owner.get(ACME)).json()["rules"] == {"share": 50}


async def test_a_tenant_writes_through_no_account_of_another(owner: httpx2.AsyncClient, acme: dict[str, str]) -> None:
    """The answer would leave in the other tenant's name. What has no tenant is for all of them."""
    person = {"conversation": "4179", "channel": "whatsapp"}
    for path, body in (("/v1/messages", {"id": "1", "text": "hi"}), ("/v1/activity", {"kind": "typing"})):
        for account in ("", "default", "1065", "/1065"):
            refused = await owner.post(path, json=person | body | {"account": account}, headers=acme)
            assert (refused.status_code, "another tenant" in refused.json()["detail"]) == (403, True), account
            assert (await owner.post(path, json=person | body | {"account": account})).status_code == 202
        for free in ({"account": "desk/1065"}, {"channel": "telegram"}, {"account": "nobody/1065"}):
            assert (await owner.post(path, json=person | body | free, headers=acme)).status_code == 202, free
    listed = {"id": "1", "text": "hi", "account": "1065", **person}
    assert (await owner.post("/v1/messages", json=[listed], headers=acme)).status_code == 403


async def test_a_tenant_cannot_use_up_the_room_for_rules(
    owner: httpx2.AsyncClient, acme: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by many layers nor by long ones."""
    monkeypatch.setattr(live, "MOST_LAYERS_OF_TENANT", 3)
    for name in ("a", "b", "c"):
        path = f"/v1/rules/conversation/acme:generic:default:{name}"
        assert (await owner.put(path, json={"silenceMs": 5}, headers=acme)).status_code == 200
    refused = await owner.put(ACME, json={"silenceMs": 5}, headers=acme)
    assert (refused.status_code, "3 layers" in refused.json()["detail"]) == (400, True)
    assert (await owner.put(path, json={"silenceMs": 6}, headers=acme)).status_code == 200
    assert (await owner.put(ACME, json={"silenceMs": 5})).status_code == 200
    assert (await owner.put(path, json={"silenceMs": 7}, headers=acme)).status_code == 200
    monkeypatch.undo()
    words = [f"{number:0100}" for number in range(1_000)]
    refused = await owner.put(path, json={"stopWords": words}, headers=acme)
    assert (refused.status_code, "bytes" in refused.json()["detail"]) == (400, True)
    assert (await owner.put(path, json={"stopWords": words})).status_code == 200


async def test_a_tenant_cannot_use_up_the_room_for_keys(
    owner: httpx2.AsyncClient, acme: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is revoked takes up none."""
    monkeypatch.setattr(api_keys, "MOST_KEYS_OF_TENANT", 3)
    ask = {"name": "desk", "scopes": ["orders"], "tenants": ["acme"]}
    made = [await owner.post("/v1/keys", json=ask, headers=acme) for _ in range(3)]
    assert [answer.status_code for answer in made] == [201, 201, 400]
    assert "3 API keys" in made[-1].json()["detail"]
    assert (await owner.delete(f"/v1/keys/{made[0].json()['id']}", headers=acme)).status_code == 204
    assert (await owner.post("/v1/keys", json=ask, headers=acme)).status_code == 201
    assert (await owner.post("/v1/keys", json=ask)).status_code == 201


async def test_a_tenant_cannot_use_up_the_room_for_watchers(
    turns: TurnTake, acme: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_WATCHERS_OF_TENANT", 2)
    app = turns.asgi(api_keys=[OWNER])
    _, globex = await turns.keys.make(ANYBODY, "globex", ["events"], ["globex"])
    async with asyncio.TaskGroup() as group:
        for key, expected in ((acme["X-API-Key"], [200, 200, 503]), (globex, [200]), (OWNER, [200])):
            assert [await _watch(app, key, group) for _ in expected] == expected
        app.state.events.close()


async def _watch(app: Any, key: str, group: asyncio.TaskGroup) -> int:
    """The status of a stream that goes on."""
    status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/events",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"x-api-key", key.encode())],
    }

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.set_result(message["status"])

    group.create_task(app(scope, asyncio.Event().wait, send))
    return await status


async def test_a_key_that_is_revoked_while_its_body_arrives_makes_and_revokes_none(turns: TurnTake) -> None:
    """Else its holder would keep a request waiting, and be back with a new key."""
    kept, _ = await turns.keys.make(ANYBODY, "desk", EVERY_SCOPE, ["acme"])
    other, _ = await turns.keys.make(ANYBODY, "another", ["orders"], ["acme"])
    caller = next(each for each in turns.keys._callers.values() if each.key_id == kept.id)
    await turns.keys.revoke(ANYBODY, kept.id)
    for change in (turns.keys.make(caller, "back", ["orders"], ["acme"]), turns.keys.revoke(caller, other.id)):
        with pytest.raises(PermissionError, match="revoked"):
            await change
    assert [key.name for key in turns.keys.list(ANYBODY) if key.revoked_at is None] == ["another"]


async def test_a_refusal_names_no_conversation_of_another_tenant(turns: TurnTake, acme: dict[str, str]) -> None:
    """Here the settings of a process contradict what was set while others ran, and a key may be a phone number."""
    own = {RuleScope("conversation", "globex:whatsapp:us:4179"): Said({"max_wait_ms": 100})}
    await turns.rule_keeper.change(own, "boss")
    unlike = TurnTake(turns.store, rules=Rules(silence_ms=5_000), role="accept", clock=turns.clock)
    async with unlike, calling(unlike.asgi(api_keys=[OWNER])) as client:
        refused = await client.put(ACME, json={"capacity": 9}, headers=acme)
        assert (refused.status_code, "globex" in refused.text, "4179" in refused.text) == (400, False, False)
        assert "4179" in (await client.put(ACME, json={"capacity": 9}, headers={"X-API-Key": OWNER})).text
