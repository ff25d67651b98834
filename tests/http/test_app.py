"""The app as a whole: its life, its health, and what it says when something is wrong."""

import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from unittest.mock import AsyncMock

import apsw
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from harness.servers import Echo, calling, serving_app, talking, until, watching
from turntake import Rules, StoreUnavailable, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.clock import SystemClock

HI = {"conversation": "ana", "id": "1", "text": "hi"}
PATIENT = Rules(silence_ms=30_000)


class Away(MemoryStore):
    """A store that can go away."""

    is_away = False

    async def append(self, arrivals: Any) -> Any:
        self._check()
        return await super().append(arrivals)

    async def next_due(self) -> int | None:
        self._check()
        return await super().next_due()

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("Redis did not do as asked (connecting to db.internal:6379).")


def test_the_lifespan_runs_turns() -> None:
    """Served alone, the app starts and stops everything itself."""
    turns = TurnTake("memory://", agent=Echo())
    with talking(turns) as client:
        assert turns.is_running
        assert client.get("/readyz").json() == {"status": "ok", "role": "all"}
    assert not turns.is_running


async def test_turns_that_run_already_are_left_running() -> None:
    """Who entered them leaves them."""
    turns = TurnTake("memory://", agent=Echo())
    async with turns:
        app = turns.asgi()
        async with app.router.lifespan_context(app):
            assert turns.is_running
        assert turns.is_running


async def test_without_its_lifespan_it_says_what_to_do() -> None:
    """The process lives, but is not ready and takes nothing."""
    async with calling(TurnTake("memory://", agent=Echo()).asgi()) as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        for response in (await client.post("/v1/messages", json=HI), await client.get("/v1/turns/x")):
            assert response.status_code == 503
            assert "async with turns" in response.json()["detail"]


def test_mounted_in_another_app() -> None:
    """Under a path of its own, with the outer app's lifespan."""
    turns = TurnTake("memory://", rules=Rules(silence_ms=1), agent=Echo())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with turns:
            yield

    outer = Starlette(routes=[Mount("/inner/v1", turns.asgi(api_keys=["secret"]))], lifespan=lifespan)
    with serving_app(outer) as server:
        headers = {"X-API-Key": "secret"}
        with httpx2.Client(base_url=f"{server.url}/inner/v1", headers=headers, timeout=20) as client:
            with watching(client) as events:
                assert client.post("/v1/messages", json=HI).status_code == 202
                assert until(events, "answered")["replies"] == ["hi"]
            assert f"{server.url}/inner/v1/v1/messages" in client.get("/").text
            assert client.get("/pages/welcome.js").status_code == 200
            del client.headers["X-API-Key"]
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/conversations").status_code == 401


@pytest.mark.parametrize("mount", ["/inner", "/webhooks/inner"])
async def test_mounted_without_keys_it_refuses_strangers(mount: str) -> None:
    """Only its own webhooks are open, whatever the path is called under which it is mounted."""
    turns = TurnTake("memory://", role="accept")
    outer = Starlette(routes=[Mount(mount, turns.asgi())])
    async with turns, calling(outer) as client:
        client.headers["Host"] = "evil.example"
        assert (await client.get(f"{mount}/v1/conversations")).status_code == 403
        assert (await client.post(f"{mount}/v1/messages", json=HI)).status_code == 403
        assert (await client.post(f"{mount}/webhooks/nobody")).status_code == 404


def test_what_is_not_there() -> None:
    """Unknown paths and methods are problems like all others."""
    with talking(TurnTake("memory://", role="accept")) as client:
        for path in ("/nothing", "/v1", "/v1/", "/v1/messages/", "/v1/turns/", "/pages/..%2fapp.py", "/pages/x"):
            response = client.get(path)
            assert (path, response.status_code) == (path, 404)
            assert response.headers["content-type"] == "application/problem+json"
        wrong = client.get("/v1/messages")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert wrong.headers["content-type"] == "application/problem+json"


def test_who_a_request_was_about_is_logged_as_a_conversation(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not within the path, where `log.people` would not find it."""
    turns = TurnTake("memory://", role="accept")
    monkeypatch.setattr(turns, "touch", AsyncMock(side_effect=StoreUnavailable("away")))
    key = "default:whatsapp:777:4915112345"
    with caplog.at_level(logging.WARNING), talking(turns) as client:
        assert client.post(f"/v1/conversations/{key}/flush").status_code == 503
    (record,) = (vars(record) for record in caplog.records if record.name == "turntake")
    assert (record["path"], record["conversation"]) == ("/v1/conversations/{key}/flush", key)


def test_a_store_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """503, nothing acknowledged, not ready; once it is back, so is everything. Only the log says which store it is."""
    store = Away(SystemClock())
    with caplog.at_level(logging.WARNING), talking(TurnTake(store, rules=PATIENT, role="accept")) as client:
        store.is_away = True
        refused = client.post("/v1/messages", json=HI)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.headers["content-type"] == "application/problem+json"
        assert "send it again" in refused.json()["detail"]
        unready = client.get("/readyz")
        assert (unready.status_code, "retry-after" in unready.headers) == (503, False)
        assert unready.json()["detail"] == "The store does not answer; the log says why."
        assert client.get("/healthz").status_code == 200
        for answer in (refused, unready):
            assert not {"Redis", "db.internal", "6379", "StoreUnavailable"} & set(re.split(r"[^\w.]", answer.text))
        store.is_away = False
        assert client.get("/readyz").status_code == 200
        assert client.post("/v1/messages", json=HI).json()["messages"] == 1
    said = [vars(record) for record in caplog.records if record.name == "turntake"]
    assert [(record["error"], record["path"]) for record in said] == [
        ("StoreUnavailable", "/v1/messages"),
        ("StoreUnavailable", "/readyz"),
    ]
    assert all("db.internal:6379" in record["reason"] for record in said)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[tuple[httpx2.Client, apsw.Connection]]:
    """A service on a SQLite file, and the connection it writes by."""
    opened: list[apsw.Connection] = []

    class Store(SqliteStore):
        async def __aenter__(self) -> Self:
            store = await super().__aenter__()
            opened.append(self.backend._writer)
            return store

    class Turns(TurnTake):
        async def __aenter__(self) -> "Turns":
            self._store_or_url = await self._stack.enter_async_context(Store(f"{tmp_path}/t.db", self.clock))
            return await super().__aenter__()

    with talking(Turns(rules=PATIENT, role="accept")) as client:
        yield client, opened[0]


@pytest.mark.parametrize(
    ("breaks", "mends"),
    [
        ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1000000"),
        ("PRAGMA query_only = on", "PRAGMA query_only = off"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_is_full_or_read_only(
    sqlite: tuple[httpx2.Client, apsw.Connection], breaks: str, mends: str
) -> None:
    """Nothing is acknowledged that is not stored, and nothing else is lost."""
    client, connection = sqlite
    large = [{"conversation": "ana", "id": str(n), "text": "x" * 5_000} for n in range(100)]
    assert client.post("/v1/messages", json=HI).status_code == 202
    connection.execute(breaks)
    refused = client.post("/v1/messages", json=large)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert client.get("/v1/conversations").json()["conversations"][0]["messageCount"] == 1
    connection.execute(mends)
    assert client.post("/v1/messages", json=large).json()[-1]["messages"] == 100


def test_our_own_mistake_is_a_500_without_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says where, and neither it nor the answer says what the person wrote."""
    turns = TurnTake("memory://", role="accept")

    async def broken(arrivals: Any) -> Any:
        raise RuntimeError("a secret")

    monkeypatch.setattr(turns, "accept_sound", broken)
    with caplog.at_level(logging.ERROR), talking(turns) as client:
        response = client.post("/v1/messages", json=HI)
        assert client.get("/healthz").status_code == 200
    assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
    (record,) = (record for record in caplog.records if record.name == "turntake")
    assert (record.__dict__["error"], record.__dict__["path"]) == ("RuntimeError", "/v1/messages")
    assert "in broken" in record.__dict__["trace"]
    assert "a secret" not in response.text + str(record.__dict__["args"]) + record.getMessage()


def test_middleware_that_somebody_adds_is_not_passed_by() -> None:
    """The busiest path goes straight only through walls of our own."""

    class Refusing:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await self.app(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    app = TurnTake("memory://", role="accept").asgi()
    app.add_middleware(Refusing)
    with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        assert client.post("/v1/messages", json={"conversation": "a", "id": "1", "text": "x"}).status_code == 401


def test_paths_that_take_messages_are_tried_first() -> None:
    """Starlette tries one path after the other, and a webhook must not wait for those that people seldom ask for."""
    paths = [getattr(route, "path", "") for route in TurnTake("memory://", agent=Echo()).asgi().routes]
    assert paths[:4] == ["/v1/messages", "/v1/activity", "/webhooks/{channel}", "/webhooks/{channel}/{account}"]
