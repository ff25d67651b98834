"""The table of endpoints: what is served, described and documented is what it says, and nothing else."""

import json
from pathlib import Path

import pytest
from starlette.routing import Route

from harness.platforms.word_channel import WordChannel
from harness.servers import MADE_KEY, OURS, Later, calling
from turntake import TurnTake
from turntake.http.endpoint import Endpoint
from turntake.http.openapi import document
from turntake.http.reference import page
from turntake.http.routes import ENDPOINTS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
DESCRIBED = [endpoint for endpoint in ENDPOINTS if endpoint.is_described]


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def path_of(endpoint: Endpoint) -> str:
    """A path that leads to the endpoint."""
    return endpoint.path.replace("{", "").replace("}", "")


def accepting() -> TurnTake:
    return TurnTake("memory://", role="accept")


def test_every_row_is_served_and_nothing_else() -> None:
    """Each path has one route, with all of its methods."""
    routes = [route for route in accepting().asgi().routes if isinstance(route, Route)]
    served = [f"{method} {route.path}" for route in routes for method in (route.methods or set()) - {"HEAD"}]
    assert sorted(served) == sorted(map(named, ENDPOINTS))
    assert len(routes) == len({endpoint.path for endpoint in ENDPOINTS})


def test_every_row_is_described_and_nothing_else() -> None:
    """Only the files of the page are left out, which are not part of the API."""
    paths = json.loads(document(ENDPOINTS))["paths"]
    described = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    assert sorted(described) == sorted(map(named, DESCRIBED))
    assert [named(endpoint) for endpoint in ENDPOINTS if not endpoint.is_described] == ["GET /pages/{name}"]


def test_the_reference_page_lists_the_table_as_it_is() -> None:
    """`python -m turntake.http.reference docs/reference/http.md` writes the list anew."""
    text = REFERENCE.read_text("utf-8")
    assert page(text) == text


@pytest.mark.parametrize("endpoint", DESCRIBED, ids=named)
def test_the_reference_page_has_every_endpoint(endpoint: Endpoint) -> None:
    text = REFERENCE.read_text("utf-8")
    assert f"`{named(endpoint)}`" in text or f"`{named(endpoint)}?" in text
    assert endpoint.purpose in text
    assert endpoint.purpose.endswith(".")


def test_methods_at_one_path_agree_on_who_may_call() -> None:
    """They share a route and its middleware, which is made for the first of them."""
    for endpoint in ENDPOINTS:
        first = next(other for other in ENDPOINTS if other.path == endpoint.path)
        assert (endpoint.access, endpoint.roles) == (first.access, first.roles)
        assert isinstance(endpoint.handler, type) == isinstance(first.handler, type)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=named)
async def test_access_is_what_the_row_says(endpoint: Endpoint) -> None:
    """Without its key, a row that needs one says 401; the others never ask for one."""
    turns = TurnTake("memory://", role="accept")
    path = path_of(endpoint)
    async with turns, calling(turns.asgi(api_keys=["secret"])) as client:
        refused = await client.request(endpoint.method, path)
        assert ("www-authenticate" in refused.headers) == (endpoint.access == "key")
        if endpoint.access == "key" and endpoint.path != "/v1/events":
            entered = await client.request(endpoint.method, path, headers={"X-API-Key": "secret"})
            assert entered.status_code != 401


# The stream of events never ends by itself.
@pytest.mark.parametrize("endpoint", [e for e in ENDPOINTS if e.path != "/v1/events"], ids=named)
async def test_roles_are_what_the_row_says(endpoint: Endpoint) -> None:
    """A process that only works refuses the rows that take messages, and serves all others."""
    turns = TurnTake("memory://", role="work", agent=Later())
    async with turns, calling(turns.asgi()) as client:
        answer = await client.request(endpoint.method, path_of(endpoint))
    is_refused = answer.status_code == 503 and "has the role `work`" in answer.json()["detail"]
    assert is_refused == ("work" not in endpoint.roles)
    assert is_refused == endpoint.path.startswith(("/v1/messages", "/v1/activity", "/webhooks/"))


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=named)
async def test_without_keys_strangers_get_to_webhooks_alone(endpoint: Endpoint) -> None:
    """Whoever calls this machine by a name that is not its own is refused by every row but a platform's."""
    turns = accepting()
    async with turns, calling(turns.asgi()) as client:
        answer = await client.request(endpoint.method, path_of(endpoint), headers={"Host": "evil.example"})
    assert (answer.status_code == 403) == (endpoint.access != "signature")


@pytest.mark.parametrize("endpoint", [e for e in ENDPOINTS if e.access in ("key", "signature")], ids=named)
async def test_the_limit_on_a_body_is_that_of_the_row(endpoint: Endpoint) -> None:
    """Webhooks have one of their own, which may be the smaller or the larger."""
    turns = accepting()
    for body_bytes, webhook_bytes in ((10, 1_000), (1_000, 10)):
        limit = webhook_bytes if endpoint.access == "signature" else body_bytes
        channels = {("channel", account): WordChannel({"word": "sesame"}) for account in ("", "account")}
        app = turns.asgi(
            max_body_bytes=body_bytes, max_webhook_bytes=webhook_bytes, channels=channels, made_key=MADE_KEY
        )
        async with turns, calling(app) as client:
            too_long = await client.request(
                endpoint.method, path_of(endpoint), content=b"x" * (limit + 1), headers=OURS
            )
        assert too_long.status_code == 413
        assert f"larger than {limit} bytes" in too_long.json()["detail"]


async def test_a_wrong_method_is_told_all_right_ones() -> None:
    """Also where two rows share a path."""
    turns = accepting()
    async with turns, calling(turns.asgi()) as client:
        response = await client.put("/v1/dead-letters/x")
        assert response.status_code == 405
        assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "DELETE"}


async def test_a_new_row_is_all_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One function and one row: it is served, behind the key, and described."""
    from starlette.requests import Request
    from starlette.responses import Response

    from turntake.http import app
    from turntake.http.json import answer

    async def hello(turns: TurnTake, request: Request) -> Response:
        return answer({"role": turns.role})

    endpoints = (*ENDPOINTS, Endpoint("GET", "/v1/hello", "Says hello.", hello, scope="events", answer=dict[str, str]))
    monkeypatch.setattr(app, "ENDPOINTS", endpoints)
    turns = accepting()
    async with turns, calling(turns.asgi(api_keys=["secret"])) as client:
        assert (await client.get("/v1/hello")).status_code == 401
        assert (await client.get("/v1/hello", headers={"X-API-Key": "secret"})).json() == {"role": "accept"}
    assert json.loads(document(endpoints))["paths"]["/v1/hello"]["get"]["summary"] == "Says hello."


async def test_head_is_answered_as_get_is() -> None:
    """Load balancers ask with HEAD; nobody deletes a letter by it."""
    turns = accepting()
    async with turns, calling(turns.asgi()) as client:
        for path, status in (("/healthz", 200), ("/v1/conversations", 200), ("/v1/dead-letters/x", 404)):
            assert (await client.head(path)).status_code == status
