"""/v1/rules: set and deleted live, by whom and when, back again, and explained."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from harness.servers import Later, calling
from turntake import ConversationKey, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.rules.api_keys import ANYBODY
from turntake.rules.live import Said
from turntake.rules.rules import Rules
from turntake.rules.scopes import RuleScope
from turntake.testing.clock import VirtualClock

ANN = ConversationKey.of("ann", tenant="acme", channel="whatsapp")
SETTINGS = {"capacity": 40, "tenant": {"acme": {"silence_ms": 2_000, "preset": "interview"}}}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def turns(clock: VirtualClock) -> AsyncIterator[TurnTake]:
    async with TurnTake(MemoryStore(clock), rules=SETTINGS, agent=Later(), clock=clock) as turns:
        yield turns


@pytest.fixture
async def client(turns: TurnTake) -> AsyncIterator[httpx2.AsyncClient]:
    async with calling(turns.asgi()) as client:
        yield client


async def put(client: httpx2.AsyncClient, path: str, **rules: Any) -> dict[str, Any]:
    response = await client.put(f"/v1/rules/{path}", json=rules)
    assert response.status_code == 200, response.text
    layer: dict[str, Any] = response.json()
    return layer


async def refusal(client: httpx2.AsyncClient, method: str, path: str, **options: Any) -> tuple[int, str]:
    response = await client.request(method, f"/v1/rules{path}", **options)
    return response.status_code, response.json()["detail"]


async def test_a_layer_is_put_shown_and_deleted(client: httpx2.AsyncClient, turns: TurnTake) -> None:
    layer = await put(client, "tenant/acme", silenceMs=700, onBusy="interrupt", preset="quick-support")
    assert layer == {
        "scope": "tenant",
        "id": "acme",
        "source": "live",
        "rules": {"silenceMs": 700, "onBusy": "interrupt"},
        "preset": "quick-support",
        "version": 1,
        "author": "anybody",
        "at": "2023-11-14T22:13:20.000Z",
        "warnings": [],
    }
    assert (await client.get("/v1/rules/tenant/acme")).json() == layer
    assert turns.rules_for(ANN).on_busy == "interrupt"
    assert (await client.delete("/v1/rules/tenant/acme")).status_code == 204
    assert turns.rules_for(ANN).silence_ms == 2_000
    assert (await refusal(client, "DELETE", "/tenant/acme"))[0] == 404


async def test_a_platform_that_is_probably_misspelled_is_taken_with_a_warning(client: httpx2.AsyncClient) -> None:
    """Messages may name any channel by the API, so it may be meant."""
    typo = ["platform whatsap: there is no channel of that name; did you mean whatsapp?"]
    assert (await put(client, "platform/whatsap", silenceMs=700))["warnings"] == typo
    assert (await put(client, "default", platformOverrides={"whatsap": {"silenceMs": 7}}))["warnings"] == typo
    for fine in ("platform/whatsapp", "platform/my-chat", "tenant/whatsap"):
        assert (await put(client, fine, silenceMs=700))["warnings"] == []
    shown = (await client.get("/v1/rules")).json()["layers"]
    assert [layer["id"] for layer in shown if layer["warnings"]] == ["whatsap"]


async def test_a_layer_replaces_the_live_one_before_it(client: httpx2.AsyncClient, turns: TurnTake) -> None:
    await put(client, "agent/sales", silenceMs=700, capacity=9)
    await put(client, "agent/sales", silenceMs=800)
    assert turns.rules_for(ConversationKey.of("bob"), "sales") == Rules(silence_ms=800, capacity=40)


async def test_single_rules_are_set_and_the_rest_of_the_layer_stays(client: httpx2.AsyncClient) -> None:
    path = "/v1/rules/agent/sales"
    await put(client, "agent/sales", silenceMs=700, capacity=9, preset="interview")
    amended = (await client.patch(path, json={"silenceMs": 800, "capacity": None})).json()
    assert (amended["rules"], amended["preset"], amended["version"]) == ({"silenceMs": 800}, "interview", 2)
    assert (await client.patch(path, json={"preset": None})).json()["preset"] == ""
    assert (await client.patch("/v1/rules/default", json={"capacity": 30})).json()["rules"] == {"capacity": 30}
    status, detail = await refusal(client, "PATCH", "/agent/sales", json={"silenceMs": 90_000})
    assert (status, "max_wait_ms" in detail) == (400, True)


async def test_two_who_set_single_rules_at_the_same_moment_both_do(
    client: httpx2.AsyncClient, turns: TurnTake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process is quicker between the look and the write: the look is taken again."""
    swap, others = turns.store.documents.swap, [{"capacity": 9}]

    async def overtaken(*args: Any) -> bool:
        if others:
            assert (await client.patch("/v1/rules/agent/sales", json=others.pop())).status_code == 200
        return await swap(*args)

    monkeypatch.setattr(turns.store.documents, "swap", overtaken)
    amended = await client.patch("/v1/rules/agent/sales", json={"silenceMs": 700})
    assert amended.json()["rules"] == {"silenceMs": 700, "capacity": 9}


async def test_the_rules_of_everybody_have_no_id_and_may_bring_those_of_platforms(
    client: httpx2.AsyncClient, turns: TurnTake
) -> None:
    """By the names that other buffers use."""
    overrides = {"whatsapp": {"silenceMs": 1_500, "typingInferenceMs": 2_500}}
    await put(
        client, "default", silenceMs=900, maxWaitMs=9_000, minMessages=2, maxMessages=5, platformOverrides=overrides
    )
    wanted = Rules(silence_ms=900, max_wait_ms=9_000, min_messages=2, max_messages=5, capacity=40)
    assert turns.rules == wanted
    assert turns.rules_for(ConversationKey.of("x", channel="whatsapp")).silence_ms == 1_500
    assert (await client.get("/v1/rules/platform/whatsapp")).json()["version"] == 1
    assert (await client.get("/v1/rules/default/default")).json()["rules"]["silenceMs"] == 900
    status, detail = await refusal(client, "PUT", "/tenant/acme", json={"platformOverrides": overrides})
    assert (status, "put them to /v1/rules/default" in detail) == (400, True)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/tenant/acme", {"silence_ms": 5}, "unknown field `silence_ms`; did you mean `silenceMs`?"),
        ("/tenant/acme", {"volume": 5}, "unknown field `volume`."),
        ("/tenant/acme", {"onBusy": "wait"}, "allowed are 'queue', 'interrupt', 'steer', 'reject' at $.onBusy."),
        (
            "/default",
            {"platformOverrides": {"sms": {"silense": 5}}},
            "did you mean `silenceMs`? at $.platformOverrides",
        ),
        ("/tenant/acme", {"silenceMs": -5}, "`int` >= 0"),
        ("/tenant/acme", {"silenceMs": None}, "Expected `int`, got `null`"),
        ("/tenant/acme", {"preset": "quick"}, 'There is no preset "quick"; there are: complex-inquiry'),
        ("/tenant/acme", {"silenceMs": 60_000}, "silence_ms (60000) is above max_wait_ms (30000)"),
        ("/tenant/acme", {"minMessages": 30}, "min_messages is above max_messages"),
        ("/team/acme", {}, 'There is no scope "team"; there are: default, platform'),
        ("/conversation/ann", {}, "A conversation key reads"),
        ("/default/acme", {}, "has no id"),
    ],
)
async def test_what_cannot_be_is_refused_with_a_sentence(
    client: httpx2.AsyncClient, turns: TurnTake, path: str, body: dict[str, Any], says: str
) -> None:
    status, detail = await refusal(client, "PUT", path, json=body)
    assert status == 400
    assert says in detail
    assert turns.rule_keeper.live.version == 0


async def test_two_scopes_that_contradict_each_other_are_both_named(client: httpx2.AsyncClient) -> None:
    await put(client, "agent/sales", maxMessages=5)
    status, detail = await refusal(client, "PUT", "/tenant/zeta", json={"minMessages": 6})
    assert status == 400
    assert "[tenant zeta] and [agent sales]" in detail


async def test_all_layers_are_listed_with_their_source(client: httpx2.AsyncClient) -> None:
    await put(client, "agent/sales", silenceMs=700)
    listed = (await client.get("/v1/rules")).json()
    assert listed["version"] == 1
    layers = [(layer["source"], layer["scope"], layer["id"], layer["rules"]) for layer in listed["layers"]]
    assert layers == [
        ("settings", "default", "", {"capacity": 40}),
        ("settings", "tenant", "acme", {"silenceMs": 2_000}),
        ("live", "agent", "sales", {"silenceMs": 700}),
    ]
    assert (await client.get("/v1/rules/tenant/acme")).json()["preset"] == "interview"
    assert (await refusal(client, "GET", "/tenant/zeta"))[0] == 404


async def test_the_history_says_who_changed_what_and_leads_back(client: httpx2.AsyncClient, turns: TurnTake) -> None:
    await put(client, "agent/sales", silenceMs=700)
    await put(client, "agent/sales", silenceMs=800)
    restored = (await client.post("/v1/rules/rollback", json={"version": 1})).json()
    assert restored["version"] == 3
    assert turns.rules_for(ANN, "sales").silence_ms == 700
    history = (await client.get("/v1/rules/history")).json()
    assert [(change["version"], change["restored"]) for change in history["changes"]] == [(3, 1), (2, None), (1, None)]
    assert history["changes"][1]["edits"] == [
        {
            "scope": "agent",
            "id": "sales",
            "before": {"rules": {"silenceMs": 700}, "preset": ""},
            "after": {"rules": {"silenceMs": 800}, "preset": ""},
        }
    ]
    status, detail = await refusal(client, "POST", "/rollback", json={"version": 9})
    assert (status, detail) == (400, "Version 9 is not known; there are 0 to 3.")


async def test_explain_shows_every_value_and_its_scope(client: httpx2.AsyncClient, turns: TurnTake) -> None:
    await put(client, "agent/sales", activityMs=7)
    await turns.receive("hi", conversation="ann", id="m1", tenant="acme", channel="whatsapp")
    answer = (await client.get("/v1/rules/explain", params={"conversation": str(ANN), "agent": "sales"})).json()
    assert (answer["conversationKey"], answer["agent"]) == (str(ANN), "sales")
    assert len(answer["rules"]) == len(Rules.__struct_fields__)
    assert answer["rules"]["activityMs"] == {"value": 7, "scope": "agent", "id": "sales", "source": "live"}
    assert answer["rules"]["silenceMs"] == {"value": 2_000, "scope": "tenant", "id": "acme", "source": "settings"}
    assert answer["rules"]["typingInferenceMs"]["value"] == 5_000
    assert answer["rules"]["capacity"] == {"value": 40, "scope": "default", "id": "", "source": "settings"}
    assert answer["rules"]["enabled"] == {"value": True, "scope": "default", "id": "", "source": None}


async def test_explain_names_the_limits_that_apply(client: httpx2.AsyncClient) -> None:
    """Those of the agent that a message names, as they are counted."""
    await put(client, "tenant/acme", messagesPerMinute=20)
    await put(client, "agent/sales", bytesPerMinute=9_000)
    asked = {"conversation": str(ANN)}
    own, of_sales = {"rule": "messagesPerMinute", "perMinute": 20}, {"rule": "bytesPerMinute", "perMinute": 9_000}
    assert (await client.get("/v1/rules/explain", params=asked)).json()["limits"] == [own]
    assert (await client.get("/v1/rules/explain", params={**asked, "agent": "sales"})).json()["limits"] == [
        own,
        of_sales,
    ]
    message = {**ANN._asdict(), "id": "m1", "text": "hi", "agent": "sales"}
    assert (await client.post("/v1/rules/explain", json=message)).json()["limits"] == [own, of_sales]
    asked = {"conversation": "default:generic:default:bob"}
    assert (await client.get("/v1/rules/explain", params=asked)).json()["limits"] == []


async def test_what_another_process_set_a_moment_ago_is_shown_and_deleted(
    client: httpx2.AsyncClient, turns: TurnTake, clock: VirtualClock
) -> None:
    async with TurnTake(turns.store, role="accept", clock=clock) as other:
        sales = RuleScope("agent", "sales")
        await other.rule_keeper.change({sales: Said({"silence_ms": 5})}, "ann")
        assert (await client.get("/v1/rules/agent/sales")).json()["rules"] == {"silenceMs": 5}
        await other.rule_keeper.change({sales: None, RuleScope("agent", "support"): Said({"silence_ms": 6})}, "ann")
        assert (await client.delete("/v1/rules/agent/support")).status_code == 204


async def test_explain_knows_the_agent_that_a_conversation_has(client: httpx2.AsyncClient) -> None:
    await put(client, "agent/sales", activityMs=7)
    message = {"conversation": "ann", "id": "m1", "text": "hi", "agent": "sales"}
    key = (await client.post("/v1/messages", json=message)).json()["conversationKey"]
    answer = (await client.get("/v1/rules/explain", params={"conversation": key})).json()
    assert (answer["agent"], answer["rules"]["activityMs"]["value"]) == ("sales", 7)
    next_one = {"conversation": "ann", "id": "m2", "text": "hi"}
    answer = (await client.post("/v1/rules/explain", json=next_one)).json()
    assert (answer["agent"], answer["rules"]["activityMs"]["value"]) == ("sales", 7)


async def test_explain_asked_for_another_agent_than_the_conversation_has(client: httpx2.AsyncClient) -> None:
    message = {"conversation": "ann", "id": "m1", "text": "hi", "agent": "sales"}
    key = (await client.post("/v1/messages", json=message)).json()["conversationKey"]
    answer = (await client.get("/v1/rules/explain", params={"conversation": key, "agent": "support"})).json()
    assert answer["agent"] == "support"
    answer = (await client.post("/v1/rules/explain", json={**message, "id": "m2", "agent": "support"})).json()
    assert answer["agent"] == "support"


async def test_what_would_be_done_with_a_message_is_what_is_done_and_asking_does_nothing(
    client: httpx2.AsyncClient, turns: TurnTake, clock: VirtualClock
) -> None:
    await put(client, "agent/sales", silenceMs=4_000, typingInferenceMs=0)
    body = {"conversation": "ann", "tenant": "acme", "id": "m1", "text": "hi", "agent": "sales"}
    for number in (1, 2):
        message = {**body, "id": f"m{number}"}
        expected = (await client.post("/v1/rules/explain", json=message)).json()
        assert (expected["status"], expected["messages"], expected["reason"]) == ("buffered", number, "silence")
        assert expected["rules"]["silenceMs"]["scope"] == "agent"
        done = (await client.post("/v1/messages", json=message)).json()
        assert {name: expected[name] for name in done} == done
        await clock.advance(500)
    again = (await client.post("/v1/rules/explain", json=body)).json()
    assert (again["status"], again["interrupts"]) == ("duplicate", None)
    blank = (await client.post("/v1/rules/explain", json={**body, "id": "m9", "text": " "})).json()
    assert blank["status"] == "ignored"
    found = await turns.store.find(ConversationKey.of("ann", tenant="acme"))
    assert found is not None
    assert [message.id for message in found.messages] == ["m1", "m2"]


async def test_a_message_that_would_stop_the_running_answer_says_so(
    client: httpx2.AsyncClient, clock: VirtualClock
) -> None:
    await put(client, "default", onBusy="interrupt", silenceMs=100)
    body = {"conversation": "ann", "id": "m1", "text": "hi"}
    await client.post("/v1/messages", json=body)
    await clock.advance(1_000)
    expected = (await client.post("/v1/rules/explain", json={**body, "id": "m2"})).json()
    assert expected["interrupts"].startswith("turn_")
    assert expected["messages"] == 2


async def test_a_key_for_one_tenant_sets_and_sees_that_ones_rules_only(
    client: httpx2.AsyncClient, turns: TurnTake
) -> None:
    _, boss = await turns.keys.make(ANYBODY, "boss", ["rules"])
    _, desk = await turns.keys.make(ANYBODY, "desk", ["rules"], ["acme"])
    client.headers["authorization"] = f"Bearer {boss}"
    await put(client, "tenant/zeta", silenceMs=800)
    await put(client, "default", silenceMs=900)
    client.headers["authorization"] = f"Bearer {desk}"
    assert (await put(client, "tenant/acme", silenceMs=700))["author"] == "desk"
    await put(client, f"conversation/{ANN}", silenceMs=600)
    for path in ("/tenant/zeta", "/default", "/agent/sales", "/platform/whatsapp", "/conversation/zeta:a:b:c"):
        assert (await refusal(client, "PUT", path, json={}))[0] == 403
        assert (await refusal(client, "PATCH", path, json={}))[0] == 403
        assert (await refusal(client, "DELETE", path))[0] == 403
        assert (await refusal(client, "GET", path))[0] == 404
    assert (await refusal(client, "POST", "/rollback", json={"version": 0}))[0] == 403
    listed = (await client.get("/v1/rules")).json()["layers"]
    assert {(layer["scope"], layer["id"]) for layer in listed} == {("tenant", "acme"), ("conversation", str(ANN))}
    changes = (await client.get("/v1/rules/history")).json()["changes"]
    assert [change["author"] for change in changes] == ["desk", "desk"]
    foreign = await client.get("/v1/rules/explain", params={"conversation": "zeta:generic:default:x"})
    assert foreign.status_code == 404
    expected = await client.post("/v1/rules/explain", json={"conversation": "ann", "id": "m1", "text": "hi"})
    assert expected.json()["conversationKey"] == "acme:generic:default:ann"


async def test_words_are_set_live_and_explained(client: httpx2.AsyncClient, clock: VirtualClock) -> None:
    """The text is looked at as if it came, and nothing is done."""
    layer = await put(client, "tenant/acme", stopWords=["basta", "@de"], holdWords=["one moment"])
    assert layer["rules"] == {"stopWords": ["basta", "@de"], "holdWords": ["one moment"]}
    body = {"conversation": "ann", "tenant": "acme", "channel": "whatsapp", "id": "m1"}
    for text, reason in (("Basta!", "stop word"), ("one moment", "hold word"), ("hi", "silence")):
        explained = (await client.post("/v1/rules/explain", json=body | {"text": text})).json()
        assert (explained["reason"], explained["messages"]) == (reason, 1)
    assert explained["rules"]["stopWords"]["value"] == ["basta", "@de"]
    status, detail = await refusal(client, "PUT", "/tenant/acme", json={"stopWords": ["@xx"]})
    assert (status, "lists of our own" in detail) == (400, True)


async def test_what_a_stop_word_ended_is_listed(client: httpx2.AsyncClient) -> None:
    await put(client, "default", stopWords=["stop"])
    for id, text in (("m1", "my order"), ("m2", "Stop")):
        body = {"conversation": "eve", "id": id, "text": text}
        receipt = (await client.post("/v1/messages", json=body)).json()
    assert (receipt["status"], receipt["reason"], receipt["messages"]) == ("buffered", "stop word", 1)
    shown = (await client.get("/v1/conversations/default:generic:default:eve")).json()
    assert shown["turn"]["reason"] == "stop word"
    (past,) = shown["turns"]
    assert (past["status"], past["reason"], past["messageCount"]) == ("stopped", "stop word", 1)
    turn = (await client.get(f"/v1/turns/{past['turnId']}")).json()
    assert (turn["status"], turn["text"], turn["reason"]) == ("stopped", "my order", "stop word")
