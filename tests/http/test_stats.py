"""/v1/stats: what collecting messages saved, and to whom it is told."""

from collections.abc import Iterator

import httpx2
import pytest

from harness.servers import Echo, talking, until, watching
from turntake import Rules, TurnTake
from turntake.http.stats import stats_view
from turntake.observe.options import SavingsOptions
from turntake.rules.api_keys import EVERY_SCOPE, Caller
from turntake.rules.savings import OTHERS, Savings, Sums

ACME, GLOBEX = Sums(turns=2, messages=6, added_ms=2_500, interrupted=1), Sums(turns=5, messages=7, failed=1, dead=1)
SAVED = Savings(1_700_000_000_000, {"acme": ACME, "globex": GLOBEX, OTHERS: Sums(turns=1, messages=2)})
PRICED = SavingsOptions(call_price=0.1, currency="EUR")
ADMIN = Caller("admin", EVERY_SCOPE)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    patient = Rules(silence_ms=30_000, typing_inference_ms=30_000)
    with talking(TurnTake("memory://", rules=patient, agent=Echo(), call_price=0.5)) as client:
        yield client


def test_it_tells_what_was_saved(client: httpx2.Client) -> None:
    """Three messages in one turn are two calls less, which somebody would have paid for."""
    body = [{"tenant": "acme", "conversation": "ann", "id": str(number), "text": "hi"} for number in range(3)]
    with watching(client) as events:
        key = client.post("/v1/messages", json=body).json()[0]["conversationKey"]
        client.post(f"/v1/conversations/{key}/flush")
        until(events, "answered")
    stats = client.get("/v1/stats").json()
    assert (stats["callPrice"], stats["currency"]) == (0.5, "USD")
    (acme,) = stats["tenants"]
    assert acme.pop("tenant") == "acme"
    assert acme == stats["total"]
    assert (acme["turns"], acme["messages"], acme["callsAvoided"], acme["moneySaved"]) == (1, 3, 2, 1.0)
    assert client.get("/v1/stats", params={"tenant": "nobody"}).json()["tenants"] == []


def test_the_tenants_of_the_most_savings_come_first() -> None:
    """Those who are not told apart count in the total."""
    view = stats_view(SAVED, PRICED, ADMIN)
    assert [(each.tenant, each.calls_avoided, each.money_saved) for each in view.tenants] == [
        ("acme", 3, 0.3),
        ("globex", 2, 0.2),
    ]
    assert (view.total.turns, view.total.messages, view.total.calls_avoided) == (8, 15, 6)
    assert (view.total.failed, view.total.dead, view.total.interrupted) == (1, 1, 1)
    assert view.since == "2023-11-14T22:13:20.000Z"


def test_without_a_price_there_is_no_money() -> None:
    assert stats_view(SAVED, SavingsOptions(), ADMIN).total.money_saved is None


def test_a_key_of_some_tenants_learns_nothing_of_others() -> None:
    """Neither in the list nor in the total."""
    view = stats_view(SAVED, PRICED, Caller("crm", EVERY_SCOPE, frozenset({"globex"})))
    assert [each.tenant for each in view.tenants] == ["globex"]
    assert (view.total.turns, view.total.messages) == (5, 7)
    none = stats_view(SAVED, PRICED, Caller("crm", EVERY_SCOPE, frozenset({"initech"})))
    assert (none.tenants, none.total.turns) == ([], 0)


def test_one_tenant_is_shown_alone() -> None:
    view = stats_view(SAVED, PRICED, ADMIN, "acme")
    assert [each.tenant for each in view.tenants] == ["acme"]
    assert view.total.calls_avoided == 3


def test_a_key_of_some_tenants_asks_for_no_other() -> None:
    with talking(TurnTake("memory://", role="accept")) as client:
        asked = {"name": "crm", "scopes": sorted(EVERY_SCOPE), "tenants": ["acme"]}
        crm = {"X-API-Key": client.post("/v1/keys", json=asked).json()["key"]}
        answers = [client.get("/v1/stats", params={"tenant": name}, headers=crm) for name in ("acme", "globex")]
        assert [answer.status_code for answer in answers] == [200, 404]


def test_a_call_may_cost_less_than_a_cent() -> None:
    assert stats_view(SAVED, SavingsOptions(call_price=0.0001), ADMIN).total.money_saved == 0.0006
