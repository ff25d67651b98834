"""Tenants kept apart: whatever a key of one asks for, and however, it learns nothing of another and changes nothing.

The requests are made from /openapi.json, so that an endpoint that is added later is attacked too. What stands in paths,
queries and bodies is drawn from the ids, cursors and names of both tenants.
"""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.servers import Later, calling
from turntake import ConversationKey, Rules, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.http.endpoint import Endpoint
from turntake.http.openapi import document
from turntake.http.routes import ENDPOINTS
from turntake.observe.stream import Happening
from turntake.rules.api_keys import ANYBODY, EVERY_SCOPE
from turntake.rules.conversation import Touch
from turntake.rules.live import Said
from turntake.rules.scopes import SCOPE_KINDS, RuleScope
from turntake.testing.clock import VirtualClock

OURS, THEIRS = "acme", "globex"
ATTACKED = [endpoint for endpoint in ENDPOINTS if endpoint.access == "key" and endpoint.path != "/v1/events"]
EACH = 40
# What only the other tenant knows: it is in words, ids, replies and keys of theirs. Conversations of both have the same
# names.
HIDDEN = ("hush", THEIRS)
STATES = ("answered", "open", "dead", "waiting", "waiting-2")


class Stage(NamedTuple):
    """A running service with both tenants' data, who attacks, and what there is to ask for."""

    turns: TurnTake
    store: MemoryStore
    client: httpx2.AsyncClient
    attackers: dict[str, str]
    pool: dict[str, list[str]]
    theirs: set[str]


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    """Each tenant has messages that wait, a turn with its agent, one that is answered, a dead letter and a key."""
    clock = VirtualClock()
    store = MemoryStore(clock)
    rules = Rules(silence_ms=1_000, typing_inference_ms=1_000)
    turns = TurnTake(store, rules=rules, agent=Later(), clock=clock)
    async with turns, calling(turns.asgi()) as client:
        ids = {tenant: await _life_of(tenant, turns, clock) for tenant in (OURS, THEIRS)}
        keys = {
            "a key": (await turns.keys.make(ANYBODY, "desk", EVERY_SCOPE, [OURS]))[1],
            "a key for two": (await turns.keys.make(ANYBODY, "desk", EVERY_SCOPE, [OURS, "initech"]))[1],
            "a token": turns.keys.token_for(ids[OURS]["turnId"][0]),
        }
        _, spy = await turns.keys.make(ANYBODY, "hush spy", EVERY_SCOPE, [THEIRS])
        cursors = [await _cursor(client, path, spy) for path in ("/v1/conversations", "/v1/dead-letters")]
        pool = {name: [*ids[THEIRS][name], *ids[OURS][name], "x"] for name in ids[OURS]}
        pool |= {"tenant": [THEIRS, OURS, ""], "cursor": [*cursors, "", "0", "1"], "scope": list(SCOPE_KINDS)}
        pool["waitMs"] = ["0"]  # nobody moves the clock while a request waits
        theirs = {value for values in ids[THEIRS].values() for value in values} | {THEIRS, *cursors}
        yield Stage(turns, store, client, keys, pool, theirs)


async def _life_of(tenant: str, turns: TurnTake, clock: VirtualClock) -> dict[str, list[str]]:
    """Gives a tenant its share of everything; what of it can be named in a request, by the name of the parameter."""
    word = "hush" if tenant == THEIRS else "known"
    for name in STATES:
        if name == "waiting":
            await clock.advance(2_000)
        await turns.receive(f"{word} text", conversation=name, id=f"{word}-1", sender=f"{word} person", tenant=tenant)
        if name == "dead":
            await turns.touch(ConversationKey.of(name, tenant=tenant), Touch("clear"))
    keys = [ConversationKey.of(name, tenant=tenant) for name in STATES]
    records = [record for key in keys for record in await turns.store.history.turns(key, 5)]
    opened = [record.id for record in records if record.status == "answering"]
    await turns.complete(opened[0], [f"{word} reply"])
    await turns.receive(f"{word} more", conversation="open", id=f"{word}-2", tenant=tenant)
    key, _ = await turns.keys.make(ANYBODY, f"{word} key", ["orders"], [tenant])
    own = {RuleScope("tenant", tenant): Said({"capacity": 40}), RuleScope("conversation", str(keys[0])): Said()}
    await turns.rule_keeper.change(own, f"{word} boss")
    letters = [letter.id for letter in (await turns.store.letters.list(50)).items if letter.key.tenant == tenant]
    assert (len(opened), len(letters)) == (2, 1)
    return {
        "turnId": [*opened[1:], opened[0]],
        "id": [*letters, key.id, tenant, str(keys[0])],
        "key": [str(key) for key in keys],
        "conversation": [str(key) for key in keys],
    }


async def _cursor(client: httpx2.AsyncClient, path: str, key: str) -> str:
    """One that a listing of theirs gave, or one like it where everything fits on a page."""
    page = (await client.get(path, params={"limit": 1}, headers={"X-API-Key": key})).json()
    return page["cursor"] or "1-turn_x"


def of_theirs(stage: Stage) -> Any:
    """All that the store holds of the other tenant."""
    model, keys, rules = stage.store.model, stage.turns.keys, stage.turns.rule_keeper.live
    return (
        {key: value for key, value in model.conversations.items() if key.tenant == THEIRS},
        {key: dict(value) for key, value in model.messages.items() if key.tenant == THEIRS},
        {id for id, key in model.owners.items() if key.tenant == THEIRS},
        {id: closed for id, closed in model.letters.items() if model.owners[id].tenant == THEIRS},
        [key for key in keys.list(ANYBODY) if THEIRS in (key.tenants or ())],
        [layer for layer in rules.layers if THEIRS in layer.scope.id],
    )


DESCRIBED = json.loads(document(ENDPOINTS))


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(0, 1_000),
    "boolean": st.booleans(),
    "string": st.sampled_from(["x", "2026-11-15T09:30:00.250Z"]),
}


def values_for(name: str, schema: dict[str, Any], pool: dict[str, list[str]]) -> st.SearchStrategy[Any]:
    """What may stand where the description has this name: something of either tenant, or what fits its type."""
    if name in pool:
        return st.sampled_from(pool[name])
    if "$ref" in schema:
        schema = DESCRIBED["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return st.one_of([values_for(name, each, pool) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "properties" in schema:
        fields = {field: values_for(field, of, pool) for field, of in schema["properties"].items()}
        needed = {field: fields.pop(field) for field in schema.get("required", ())}
        return st.fixed_dictionaries(needed, optional=fields)
    if "items" in schema:
        return st.lists(values_for(name.removesuffix("s"), schema["items"], pool), min_size=1, max_size=2)
    return PLAIN.get(schema.get("type", ""), st.none())


@st.composite
def requests(draw: st.DrawFn, endpoint: Endpoint, pool: dict[str, list[str]]) -> tuple[str, dict[str, str], Any]:
    """A path, a query and a body of an endpoint. What a body says becomes the sender's own, so it names their tenant
    and cursors, and conversations that both have."""
    operation = DESCRIBED["paths"][endpoint.path][endpoint.method.lower()]
    path, query = endpoint.path, {}
    for parameter in operation["parameters"]:
        value = draw(values_for(parameter["name"], parameter["schema"], pool))
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(str(value), safe=""))
        elif value not in ("", None) and draw(st.booleans()):
            query[parameter["name"]] = str(value)
    body = None
    if "requestBody" in operation:
        named = {"tenant": pool["tenant"], "cursor": pool["cursor"], "conversation": list(STATES)}
        body = draw(values_for("", operation["requestBody"]["content"]["application/json"]["schema"], named))
    return path, query, body


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[asyncio.Runner, Stage]]:
    with asyncio.Runner() as runner:
        context = staged()
        yield runner, runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))


@pytest.mark.parametrize("endpoint", ATTACKED, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_nothing_of_another_tenant_is_shown_or_changed(stage: tuple[asyncio.Runner, Stage], endpoint: Endpoint) -> None:
    runner, scene = stage
    before = of_theirs(scene)

    def ask(path: str, query: dict[str, str], body: Any, attacker: str) -> None:
        headers = {"X-API-Key": scene.attackers[attacker]}
        sent = scene.client.request(endpoint.method, path, params=query, json=body, headers=headers)
        response = runner.run(_answer(sent))
        said = unquote(path) + json.dumps([query, body])
        for line in response.text.split('"'):
            assert line in said or not any(word in line for word in HIDDEN), f"it shows {line}"
        named = {unquote(part) for part in path.split("/")} | set(query.values())
        if named & scene.theirs:
            assert response.status_code in (400, 403, 404), response.text
        assert of_theirs(scene) == before

    @settings(max_examples=EACH, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(requests(endpoint, scene.pool), st.sampled_from(sorted(scene.attackers)))
    def attack(asked: tuple[str, dict[str, str], Any], attacker: str) -> None:
        ask(*asked, attacker)

    for path in naming_theirs(endpoint, scene):
        for attacker in scene.attackers:
            ask(path, {}, {"error": "x"} if endpoint.path.endswith("fail") else {}, attacker)
    attack()


def naming_theirs(endpoint: Endpoint, stage: Stage) -> list[str]:
    """The path of an endpoint with each id of theirs that can stand in it, in all combinations."""
    names = re.findall(r"{(\w+)}", endpoint.path)
    named = itertools.product(*(stage.pool[name] for name in names))
    return [
        endpoint.path.format(**{name: quote(value, safe="") for name, value in zip(names, values, strict=True)})
        for values in named
        if stage.theirs & set(values)
    ]


async def _answer(sent: Any) -> httpx2.Response:
    response: httpx2.Response = await sent
    return response


def test_the_stage_is_set(stage: tuple[asyncio.Runner, Stage]) -> None:
    """Their own key finds all of what the attackers look for, so that it is there to be found."""
    runner, scene = stage
    assert [len(part) for part in of_theirs(scene)] == [5, 5, 3, 1, 2, 2]
    whole = scene.turns.keys.list(ANYBODY)
    assert {THEIRS, OURS} <= {tenant for key in whole for tenant in key.tenants or ()}
    _, spy = runner.run(scene.turns.keys.make(ANYBODY, "theirs", EVERY_SCOPE, [THEIRS]))
    for endpoint in ATTACKED:
        if endpoint.method == "GET" and "{" in endpoint.path:
            first = {name: quote(values[0], safe="") for name, values in scene.pool.items()}
            if "{scope}" in endpoint.path:
                first |= {"scope": "tenant", "id": THEIRS}
            path = endpoint.path.format(**first)
            assert "hush" in runner.run(_answer(scene.client.get(path, headers={"X-API-Key": spy}))).text, path


async def test_a_page_of_a_list_leads_on_past_other_tenants() -> None:
    """A tenant with few conversations among many finds all of its own, whatever lies between them."""
    async with staged() as scene:
        for key, expected in (("a key", 5), ("a key for two", 5)):
            found, cursor = [], ""
            while True:
                headers = {"X-API-Key": scene.attackers[key]}
                path = f"/v1/conversations?limit=2&cursor={cursor}"
                page = (await scene.client.get(path, headers=headers)).json()
                found += [each["conversationKey"] for each in page["conversations"]]
                cursor = page["cursor"]
                if cursor is None:
                    break
            assert (len(found), {each.partition(":")[0] for each in found}) == (expected, {OURS})
            letters = (await scene.client.get("/v1/dead-letters", params={"limit": 1}, headers=headers)).json()
            assert [each["conversationKey"].partition(":")[0] for each in letters["deadLetters"]] == [OURS]


async def test_a_watcher_is_told_of_its_own_tenants_alone() -> None:
    """And of nothing any more once its key is revoked; what others do takes up no room in its queue."""
    async with staged() as scene:
        kept, written = await scene.turns.keys.make(ANYBODY, "watcher", ["events"], [OURS])
        headers = {"X-API-Key": written}
        for key in scene.pool["key"][:5]:
            response = await scene.client.get("/v1/events", params={"conversation": key}, headers=headers)
            assert response.status_code == 404
        told: list[Happening] = []
        caller = next(each for each in scene.turns.keys._callers.values() if each.key_id == kept.id)
        async with scene.turns.events.watch(caller.sees) as queue:
            for tenant in (THEIRS, OURS, "initech"):
                await scene.turns.receive("hi", conversation="new", id="1", tenant=tenant)
            while not queue.empty():
                told.append(queue.get_nowait())
        assert [each.key.tenant for each in told] == [OURS]
        assert scene.turns.keys.is_in_force(caller)
        await scene.turns.keys.revoke(ANYBODY, kept.id)
        assert not scene.turns.keys.is_in_force(caller)
