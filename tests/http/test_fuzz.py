"""Whatever is sent, the answer is never a 5xx and the server lives on."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.servers import Later, talking
from turntake import Rules, TurnTake

ANA = "/v1/conversations/default:generic:default:ana"
PATHS = [
    "/v1/messages",
    "/v1/activity",
    *(f"{ANA}/{order}" for order in ("flush", "hold", "clear")),
    *(f"/v1/turns/turn_x/{order}" for order in ("complete", "fail", "extend")),
    "/v1/dead-letters/turn_x/retry",
]
NAMES = ["conversation", "id", "text", "sentAt", "attachments", "metadata", "kind", "forMs", "reply", "error", "topic"]
GOOD = {"conversation": "ana", "id": "1", "text": "hi", "kind": "typing"}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes().map(str),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
nearly = objects.map(lambda some: GOOD | some)
documents = st.one_of(values, objects, nearly, st.lists(nearly, max_size=3)).map(lambda v: json.dumps(v).encode())
bodies = st.one_of(st.binary(max_size=200), documents)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with talking(TurnTake("memory://", rules=Rules(silence_ms=30_000), agent=Later())) as client:
        client.post("/v1/messages", json={"conversation": "ana", "id": "0", "text": "hi"})
        yield client


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PATHS), body=bodies)
def test_any_body_is_answered(client: httpx2.Client, path: str, body: bytes) -> None:
    """With a receipt, or with a problem that says what is wrong."""
    response = client.post(path, content=body)
    assert response.status_code in (200, 202, 400, 404, 409)
    if response.status_code >= 400:
        problem: dict[str, Any] = response.json()
        assert problem["status"] == response.status_code
        assert problem["detail"]


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/v1/conversations", "/v1/dead-letters", "/v1/turns", "/pages", ""]),
    name=st.text(st.characters(codec="utf-8"), max_size=20),
    params=st.dictionaries(
        st.sampled_from(["status", "limit", "cursor", "tenant"]),
        st.text(st.characters(codec="utf-8"), max_size=20),
        max_size=2,
    ),
)
def test_any_path_and_query_is_answered(client: httpx2.Client, path: str, name: str, params: dict[str, str]) -> None:
    """Also those that name nothing."""
    for target in (path or "/", f"{path}/{quote(name, safe='')}"):
        assert client.get(target, params=params).status_code in (200, 400, 404, 405)
