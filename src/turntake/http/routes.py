"""The one table of endpoints. Starlette's routes, /openapi.json and docs/reference/http.md all come from it.

A new endpoint is one function that takes the service and the request, and one row here.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.activity import Activity, ActivityBody, DueView
from turntake.accept.messages import MessageBodies, MessageBody, Messages, ReceiptView
from turntake.accept.webhooks import Webhooks
from turntake.http import conversations, explain, keys, letters, pages, rules, stats, turns
from turntake.http.endpoint import INTAKE_ROLES, JSON, Endpoint
from turntake.http.events import EventQuery, EventStream
from turntake.http.health import Health, Ready, healthz, readyz
from turntake.http.openapi import document
from turntake.http.views import AbsorbedView, ArrivalsView, ConversationDetail, ConversationView, LetterDetail, TurnView
from turntake.service import TurnTake

MESSAGES = "/v1/messages"
CONVERSATION = "/v1/conversations/{key}"
TURN = "/v1/turns/{turnId}"
LETTER = "/v1/dead-letters/{id}"
KEYS = "/v1/keys"
RULES = "/v1/rules"


async def openapi(service: TurnTake, request: Request) -> Response:
    return Response(document(ENDPOINTS), media_type=JSON)


ENDPOINTS = (
    Endpoint(
        "POST",
        MESSAGES,
        "Buffers a message, or a list of 1 to 100.",
        Messages,
        scope="messages:write",
        body=MessageBody | MessageBodies,
        answer=ReceiptView | list[ReceiptView],
        status=202,
        roles=INTAKE_ROLES,
    ),
    Endpoint(
        "POST",
        "/v1/activity",
        "Says that the person is writing or recording, or stopped: moves the deadline of what waits.",
        Activity,
        scope="messages:write",
        body=ActivityBody,
        answer=DueView,
        status=202,
        roles=INTAKE_ROLES,
    ),
    Endpoint(
        "GET",
        "/v1/conversations",
        "Lists conversations, those that are due soonest first.",
        conversations.list_page,
        scope="conversations:read",
        query=conversations.ConversationQuery,
        answer=conversations.ConversationPage,
    ),
    Endpoint(
        "GET",
        CONVERSATION,
        "Shows where a conversation stands, and why it waits.",
        conversations.show,
        scope="conversations:read",
        answer=ConversationDetail,
        problems=(400, 404),
    ),
    Endpoint(
        "GET",
        f"{CONVERSATION}/turns",
        "Lists the turns of a conversation, the latest first: messages, reasons, attempts, answer.",
        conversations.list_turns,
        scope="conversations:read",
        query=conversations.HistoryQuery,
        answer=conversations.TurnPage,
        problems=(400, 404),
    ),
    Endpoint(
        "POST",
        f"{CONVERSATION}/flush",
        "Makes what waits due now.",
        conversations.flush,
        scope="orders",
        body=conversations.NoBody | None,
        answer=ConversationDetail,
        problems=(404,),
    ),
    Endpoint(
        "POST",
        f"{CONVERSATION}/hold",
        "Holds what waits for at least this long.",
        conversations.hold,
        scope="orders",
        body=conversations.HoldBody | None,
        answer=ConversationDetail,
        problems=(404,),
    ),
    Endpoint(
        "POST",
        f"{CONVERSATION}/clear",
        "Moves what waits to the dead letters.",
        conversations.clear,
        scope="orders",
        body=conversations.NoBody | None,
        answer=ConversationDetail,
        problems=(404,),
    ),
    Endpoint(
        "GET",
        TURN,
        "Shows what became of a turn.",
        turns.show,
        scope="conversations:read",
        answer=TurnView,
        problems=(404,),
    ),
    Endpoint(
        "POST",
        f"{TURN}/complete",
        "Answers a turn; again returns the first result.",
        turns.complete,
        scope="turns:complete",
        body=turns.CompleteBody | None,
        answer=TurnView,
        problems=(404, 409),
    ),
    Endpoint(
        "POST",
        f"{TURN}/fail",
        "Reports a failed attempt.",
        turns.fail,
        scope="turns:complete",
        body=turns.FailBody,
        answer=TurnView,
        problems=(404, 409),
    ),
    Endpoint(
        "POST",
        f"{TURN}/extend",
        "Keeps a turn claimed for longer.",
        turns.extend,
        scope="turns:complete",
        body=turns.ExtendBody | None,
        answer=TurnView,
        problems=(404, 409),
    ),
    Endpoint(
        "GET",
        f"{TURN}/arrivals",
        "Shows what came since a turn was handed over and waits behind it.",
        turns.arrivals,
        scope="turns:complete",
        query=turns.ArrivalsQuery,
        answer=ArrivalsView,
        problems=(404,),
    ),
    Endpoint(
        "POST",
        f"{TURN}/absorb",
        "Takes what waits behind a turn into it, where the rules say `steer`.",
        turns.absorb,
        scope="turns:complete",
        body=conversations.NoBody | None,
        answer=AbsorbedView,
        problems=(404, 409),
    ),
    Endpoint(
        "GET",
        "/v1/dead-letters",
        "Lists dead letters, the latest first.",
        letters.list_page,
        scope="letters",
        query=letters.LetterQuery,
        answer=letters.LetterPage,
    ),
    Endpoint(
        "POST",
        "/v1/dead-letters/retry",
        "Lets the messages of several dead letters wait again, due at once.",
        letters.retry_several,
        scope="letters",
        body=letters.RetryBody | None,
        answer=letters.RetriedPage,
        status=202,
    ),
    Endpoint(
        "GET",
        LETTER,
        "Shows a dead letter with its messages.",
        letters.show,
        scope="letters",
        answer=LetterDetail,
        problems=(404,),
    ),
    Endpoint(
        "DELETE",
        LETTER,
        "Discards a dead letter; its turn stays in the history.",
        letters.discard,
        scope="letters",
        status=204,
        problems=(404,),
    ),
    Endpoint(
        "POST",
        f"{LETTER}/retry",
        "Lets the messages of a dead letter wait again, due at once.",
        letters.retry,
        scope="letters",
        answer=ConversationView,
        status=202,
        problems=(404,),
    ),
    Endpoint(
        "GET",
        "/v1/events",
        "Streams what happens in this process, as server-sent events.",
        EventStream,
        scope="events",
        query=EventQuery,
        answer=str,
        media_type="text/event-stream",
    ),
    Endpoint(
        "GET",
        RULES,
        "Lists the rules of all scopes: those of the settings, and those set while the service runs.",
        rules.list_all,
        scope="rules",
        answer=rules.RulesView,
    ),
    Endpoint(
        "GET",
        f"{RULES}/history",
        "Shows who changed which rules when, the latest change first.",
        rules.history,
        scope="rules",
        answer=rules.HistoryView,
    ),
    Endpoint(
        "POST",
        f"{RULES}/rollback",
        "Goes back to the rules of an earlier version.",
        rules.roll_back,
        scope="rules",
        body=rules.RollbackBody,
        answer=rules.RulesView,
    ),
    Endpoint(
        "GET",
        f"{RULES}/explain",
        "Shows every rule of a conversation, and which scope its value comes from.",
        explain.explain,
        scope="rules",
        query=explain.ExplainQuery,
        answer=explain.ExplainView,
        problems=(404,),
    ),
    Endpoint(
        "POST",
        f"{RULES}/explain",
        "Says what would be done with a message now, without doing it.",
        explain.explain_message,
        scope="rules",
        body=MessageBody,
        answer=explain.PreviewView,
    ),
    *(
        endpoint
        for path in (f"{RULES}/default", f"{RULES}/{{scope}}/{{id}}")
        for endpoint in (
            Endpoint(
                "GET",
                path,
                "Shows what is set for a scope.",
                rules.show,
                scope="rules",
                answer=rules.LayerView,
                problems=(400, 404),
            ),
            Endpoint(
                "PUT",
                path,
                "Sets rules for a scope, in place of the live ones that it had. All processes know within two seconds.",
                rules.put,
                scope="rules",
                body=rules.RulesBody,
                answer=rules.LayerView,
            ),
            Endpoint(
                "PATCH",
                path,
                "Sets single rules for a scope; what is not named stays, also what others set at the same moment.",
                rules.amend,
                scope="rules",
                body=rules.AmendBody,
                answer=rules.LayerView,
            ),
            Endpoint(
                "DELETE",
                path,
                "Takes away what was set for a scope while the service runs.",
                rules.delete,
                scope="rules",
                status=204,
                problems=(400, 404),
            ),
        )
    ),
    Endpoint(
        "GET",
        "/v1/stats",
        "Tells what collecting messages saved: calls of the agent avoided, time added, money; in all and by tenant.",
        stats.show,
        scope="conversations:read",
        query=stats.StatsQuery,
        answer=stats.StatsView,
        problems=(404,),
    ),
    Endpoint(
        "GET",
        KEYS,
        "Lists the API keys, the latest first, without the keys themselves.",
        keys.list_all,
        scope="admin",
        answer=keys.KeyList,
    ),
    Endpoint(
        "POST",
        KEYS,
        "Makes an API key, and shows it this once.",
        keys.make,
        scope="admin",
        body=keys.KeyBody,
        answer=keys.NewKeyView,
        status=201,
    ),
    Endpoint(
        "DELETE",
        f"{KEYS}/{{id}}",
        "Revokes an API key; within two seconds it opens nothing any more.",
        keys.revoke,
        scope="admin",
        status=204,
        problems=(404,),
    ),
    *(
        Endpoint(
            method,
            path,
            purpose,
            Webhooks,
            answer=str,
            media_type="text/plain",
            access="signature",
            roles=INTAKE_ROLES,
        )
        for path in ("/webhooks/{channel}", "/webhooks/{channel}/{account}")
        for method, purpose in (("GET", "A platform checks the address."), ("POST", "A platform tells what happened."))
    ),
    Endpoint("GET", "/healthz", "Says that the process lives.", healthz, answer=Health, access="public"),
    Endpoint(
        "GET",
        "/readyz",
        "Says whether the service runs, is not about to stop, and its store answers.",
        readyz,
        answer=Ready,
        problems=(503,),
        access="public",
    ),
    Endpoint(
        "GET", "/openapi.json", "Describes all of this as OpenAPI.", openapi, answer=dict[str, Any], access="page"
    ),
    Endpoint(
        "GET",
        "/",
        "A page for newcomers, with live events.",
        pages.welcome,
        answer=str,
        media_type="text/html",
        access="page",
    ),
    Endpoint("GET", "/pages/{name}", "The files of that page.", pages.asset, access="page", is_described=False),
)
