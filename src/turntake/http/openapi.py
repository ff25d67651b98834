"""OpenAPI 3.1, from the table of endpoints and the structs that also decode requests and encode answers."""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec

from turntake.http.endpoint import JSON, Endpoint
from turntake.http.problem import MEDIA_TYPE, ProblemBody


@cache
def document(endpoints: tuple[Endpoint, ...]) -> bytes:
    """The JSON that describes the endpoints."""
    described = [endpoint for endpoint in endpoints if endpoint.is_described]
    kinds = _kinds(described)
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    # Unions cannot be keys themselves: two that are equal may be written in another order.
    schema_of = dict(zip(map(repr, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in described:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "turntake", "version": version("turntake")},
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {
                    "bearer": {"type": "http", "scheme": "bearer"},
                    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                    "completionToken": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "`completionToken` of the event that handed this turn over.",
                    },
                },
            },
        }
    )


def _kinds(endpoints: Sequence[Endpoint]) -> list[Any]:
    """Every type that a body or an answer has."""
    kinds: list[Any] = [ProblemBody]
    for endpoint in endpoints:
        kinds += [kind for kind in (endpoint.answer, endpoint.body) if kind is not None]
    return kinds


def _operation(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.purpose,
        "parameters": [*_path_parameters(endpoint.path), *_query_parameters(endpoint.query)],
        "responses": _responses(endpoint, schema_of),
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.is_body_needed,
            "content": {JSON: {"schema": schema_of[repr(endpoint.body)]}},
        }
    if endpoint.scope is not None:
        # Of a key that is no OAuth token, the list says which roles are needed.
        roles = [endpoint.scope]
        operation["security"] = [{}, {"bearer": roles}, {"apiKey": roles}]
        if endpoint.takes_token:
            operation["security"].append({"completionToken": []})
    return operation


def _operation_id(endpoint: Endpoint) -> str:
    words = [word.strip("{}") for word in endpoint.path.split("/") if word not in ("", "v1")]
    return "-".join([endpoint.method.lower(), *words])


def _responses(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": endpoint.purpose}
    if endpoint.answer is not None:
        success["content"] = {endpoint.media_type: {"schema": schema_of[repr(endpoint.answer)]}}
    refused = {"description": "Refused", "content": {MEDIA_TYPE: {"schema": schema_of[repr(ProblemBody)]}}}
    return {str(endpoint.status): success} | {str(status): refused for status in endpoint.refusals()}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = [word[1:-1] for word in path.split("/") if word.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(query: Any) -> list[dict[str, Any]]:
    if query is None:
        return []
    _, components = msgspec.json.schema_components([query])
    properties = components[query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
