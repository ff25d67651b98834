"""`/openapi.json`: OpenAPI 3.1, from the structs that also decode and encode, and one table of operations."""

from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.body import ActivityBody, MessageBodies, MessageBody
from turntake.accept.messages import DueView, ReceiptView
from turntake.http.conversations import ConversationPage, ConversationQuery, HoldBody, NoBody
from turntake.http.events import EventQuery
from turntake.http.health import Health, Ready
from turntake.http.letters import LetterPage, LetterQuery
from turntake.http.problem import MEDIA_TYPE, ProblemBody
from turntake.http.turns import CompleteBody, ExtendBody, FailBody
from turntake.http.views import ConversationDetail, ConversationView, LetterDetail, TurnView

JSON = "application/json"


class Operation(NamedTuple):
    """One row. `problems` are those of its own; those that all of its kind share come by themselves."""

    method: str
    path: str
    summary: str
    answer: Any = None
    status: int = 200
    body: Any = None
    query: Any = None
    problems: tuple[int, ...] = ()
    media_type: str = JSON

    @property
    def is_private(self) -> bool:
        return self.path.startswith("/v1/")

    def refusals(self) -> list[int]:
        """Every status it may refuse with."""
        if not self.is_private:
            return [*self.problems]
        unread = (400, 408, 413) if self.body is not None else (400,) if self.query is not None else ()
        return sorted({*self.problems, *unread, 401, 403, 503})


MESSAGES = MessageBody | MessageBodies
RECEIPTS = ReceiptView | list[ReceiptView]
CONVERSATION = "/v1/conversations/{key}"
TURN = "/v1/turns/{turnId}"
LETTER = "/v1/dead-letters/{id}"
GONE = (404, 409)
UNBELIEVED = (400, 401, 403, 404, 408, 413, 503)

OPERATIONS = (
    Operation("POST", "/v1/messages", "Buffer a message, or a list of them", RECEIPTS, 202, MESSAGES),
    Operation("POST", "/v1/activity", "The person composes, or stopped", DueView, 202, ActivityBody),
    Operation("GET", "/v1/conversations", "Those due first first", ConversationPage, query=ConversationQuery),
    Operation("GET", CONVERSATION, "Where it stands, and why it waits", ConversationDetail, problems=(400, 404)),
    Operation("POST", f"{CONVERSATION}/flush", "Due now", ConversationDetail, 200, NoBody | None, problems=(404,)),
    Operation("POST", f"{CONVERSATION}/hold", "Wait longer", ConversationDetail, 200, HoldBody | None, problems=(404,)),
    Operation(
        "POST",
        f"{CONVERSATION}/clear",
        "Move what waits to the dead letters",
        ConversationDetail,
        body=NoBody | None,
        problems=(404,),
    ),
    Operation("GET", TURN, "What became of a turn", TurnView, problems=(404,)),
    Operation(
        "POST",
        f"{TURN}/complete",
        "Answer it; again returns the first result",
        TurnView,
        body=CompleteBody | None,
        problems=GONE,
    ),
    Operation("POST", f"{TURN}/fail", "Report a failed attempt", TurnView, body=FailBody, problems=GONE),
    Operation("POST", f"{TURN}/extend", "Keep it for longer", TurnView, body=ExtendBody | None, problems=GONE),
    Operation("GET", "/v1/dead-letters", "The latest first", LetterPage, query=LetterQuery),
    Operation("GET", LETTER, "A dead letter with its messages", LetterDetail, problems=(404,)),
    Operation("DELETE", LETTER, "Discard it", status=204, problems=(404,)),
    Operation("POST", f"{LETTER}/retry", "Let its messages wait again", ConversationView, 202, problems=(404,)),
    Operation("GET", "/v1/events", "Server-sent events", str, query=EventQuery, media_type="text/event-stream"),
    *(
        Operation(method, path, summary, str, problems=UNBELIEVED, media_type="text/plain")
        for path in ("/webhooks/{channel}", "/webhooks/{channel}/{account}")
        for method, summary in (("GET", "A platform checks the address"), ("POST", "A platform tells what happened"))
    ),
    Operation("GET", "/healthz", "The process lives", Health),
    Operation("GET", "/readyz", "It runs, is not about to stop, and its store answers", Ready, problems=(503,)),
    Operation("GET", "/openapi.json", "This description", dict[str, Any]),
    Operation("GET", "/", "A page for newcomers, with live events", str, media_type="text/html"),
)


async def openapi(request: Request) -> Response:
    return Response(document(), media_type=JSON)


@cache
def document() -> bytes:
    kinds = _kinds()
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(map(repr, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schema_of)
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
                },
            },
        }
    )


def _kinds() -> list[Any]:
    kinds: list[Any] = [ProblemBody]
    for operation in OPERATIONS:
        kinds += [kind for kind in (operation.answer, operation.body) if kind is not None]
    return kinds


def _described(operation: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation.path), *_query_parameters(operation.query)],
        "responses": _responses(operation, schema_of),
    }
    if operation.body is not None:
        is_needed = type(None) not in getattr(operation.body, "__args__", ())
        described["requestBody"] = {
            "required": is_needed,
            "content": {JSON: {"schema": schema_of[repr(operation.body)]}},
        }
    if operation.is_private:
        described["security"] = [{}, {"bearer": []}, {"apiKey": []}]
    return described


def _operation_id(operation: Operation) -> str:
    words = [word.strip("{}") for word in operation.path.split("/") if word not in ("", "v1")]
    return "-".join([operation.method.lower(), *words])


def _responses(operation: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    answered: dict[str, Any] = {"description": operation.summary}
    if operation.answer is not None:
        answered["content"] = {operation.media_type: {"schema": schema_of[repr(operation.answer)]}}
    refused = {"description": "Refused", "content": {MEDIA_TYPE: {"schema": schema_of[repr(ProblemBody)]}}}
    return {str(operation.status): answered} | {str(status): refused for status in operation.refusals()}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = [word[1:-1] for word in path.split("/") if word.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(query: Any) -> list[dict[str, Any]]:
    if query is None:
        return []
    _, components = msgspec.json.schema_components([query])
    properties = components[query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
