"""/openapi.json: valid, complete, and what really is answered."""

import json
from typing import Any

import httpx2
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from harness.servers import Echo, calling, talking, until, watching
from turntake import Rules, TurnTake
from turntake.http.openapi import document
from turntake.http.routes import ENDPOINTS


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    description: dict[str, Any] = json.loads(document(ENDPOINTS))
    return description


def test_it_is_valid(described: dict[str, Any]) -> None:
    """OpenAPI 3.1, by its own validator."""
    assert described["openapi"] == "3.1.0"
    validate(described)


def test_operations_have_names_of_their_own(described: dict[str, Any]) -> None:
    """Generators make functions of them."""
    names = [operation["operationId"] for path in described["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


async def test_it_is_served() -> None:
    """Also while nothing runs."""
    async with calling(TurnTake("memory://", role="accept").asgi()) as client:
        response = await client.get("/openapi.json")
        assert (response.status_code, response.content) == (200, document(ENDPOINTS))


def test_answers_are_as_described(described: dict[str, Any]) -> None:
    """Each kind of answer fits its schema."""
    with talking(TurnTake("memory://", rules=Rules(silence_ms=1), agent=Echo())) as client, watching(client) as events:
        sent = {"conversation": "ana", "id": "1", "text": "hi", "attachments": [{"kind": "image"}]}
        receipt = client.post("/v1/messages", json=sent)
        turn_id = until(events, "answered")["turnId"]
        key = receipt.json()["conversationKey"]
        for method, path, response in (
            ("post", "/v1/messages", receipt),
            ("post", "/v1/activity", client.post("/v1/activity", json={"conversation": "ana", "kind": "typing"})),
            ("get", "/v1/conversations", client.get("/v1/conversations")),
            ("get", "/v1/conversations/{key}", client.get(f"/v1/conversations/{key}")),
            ("get", "/v1/turns/{turnId}", client.get(f"/v1/turns/{turn_id}")),
            ("get", "/v1/turns/{turnId}", client.get("/v1/turns/x")),
            ("get", "/v1/dead-letters", client.get("/v1/dead-letters")),
            ("post", "/v1/messages", client.post("/v1/messages", json=[{}])),
            ("get", "/readyz", client.get("/readyz")),
        ):
            fits(described, described["paths"][path][method], response)


def fits(described: dict[str, Any], operation: dict[str, Any], response: httpx2.Response) -> None:
    content = operation["responses"][str(response.status_code)]["content"]
    schema = content[response.headers["content-type"]]["schema"]
    OAS31Validator(schema | {"components": described["components"]}).validate(response.json())
