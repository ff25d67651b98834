"""The HTTP service as one ASGI app, built from the table in `routes.py`.

How this works: each path of the table is a Starlette route with its own middleware, outermost first: the API key, the
role, the limits on the body. Around all routes stand `Problems`, which turns errors into answers, and without API keys
`LoopbackOnly`. `POST /v1/messages` has the same middleware, but is called past Starlette's own middleware and router,
which would add about a quarter to the CPU time that a message costs.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from starlette._utils import get_route_path
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from turntake.accept.activity import Activity
from turntake.accept.homes import Homes
from turntake.accept.intake import Intake
from turntake.accept.messages import Messages
from turntake.accept.options import Delivery, Groups, WebhookOptions
from turntake.accept.refusals import Refusals
from turntake.accept.webhooks import Channels, RefuseUnsigned, Webhooks
from turntake.http.access import LoopbackOnly, RequireKey, RequireRole
from turntake.http.callers import Callers
from turntake.http.endpoint import INTAKE_ROLES, Access, Endpoint
from turntake.http.events import EventStream
from turntake.http.limits import ArrivingBytes, BodyLimit
from turntake.http.options import HttpOptions
from turntake.http.problem import Problems, not_served
from turntake.http.routes import ENDPOINTS, MESSAGES
from turntake.service import TurnTake

_HTTP, _WEBHOOKS = HttpOptions(), WebhookOptions()


class App(Starlette):
    """A Starlette app that calls its busiest endpoint directly, unless somebody added middleware to the app."""

    busiest: ASGIApp
    own_middleware = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and self._is_busiest(scope):
            await self.busiest(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def _is_busiest(self, scope: Scope) -> bool:
        # Middleware that somebody else added must see every request, so it turns the direct way off.
        return get_route_path(scope) == MESSAGES and len(self.user_middleware) == self.own_middleware


def create(
    turns: TurnTake,
    *,
    api_keys: Sequence[str] = (),
    max_body_bytes: int = _HTTP.body_bytes,
    receive_ms: int = _HTTP.receive_ms,
    channels: Channels | None = None,
    public_url: str = "",
    made_key: str = "",
    max_webhook_bytes: int = _WEBHOOKS.body_bytes,
    groups: Groups = _WEBHOOKS.groups,
    oldest_ms: int = _WEBHOOKS.oldest_ms,
    delivery: Delivery = _WEBHOOKS.delivery,
    homes: Homes | None = None,
) -> App:
    """An app to run or to mount. Its lifespan enters `turns`, unless somebody else already did.

    Starlette does not run the lifespan of a mounted app: enter `turns` in the outer one.
    Each channel is served at `/webhooks/` and its name; `public_url` is where platforms reach the app from outside.
    What a platform dates further back than `oldest_ms` is ignored; `delivery` says which reports of replies are noted.
    `homes` says whose the conversations of an account are, and which agent they are for.
    If it is set, or a channel has its secret, and there are no `api_keys`, nothing but webhooks and health is served to
    those who do not have the `made_key`, which is for programs on this machine.
    A server that shuts down calls `app.state.events.close()`, or waits for watchers to leave by themselves.
    """
    text_limits = {name: channel.text_limit for (name, _), channel in (channels or {}).items()}
    intake = Intake(
        turns,
        by_person=groups == "person",
        oldest_ms=oldest_ms,
        delivery=delivery,
        homes=homes,
        text_limits=text_limits,
    )
    refusals = Refusals(turns.clock)
    webhooks = Webhooks(turns, channels or {}, public_url, intake, refusals)
    events = EventStream(turns)
    instances: dict[type, ASGIApp] = {
        Messages: Messages(turns, homes or {}),
        Activity: Activity(turns, homes or {}),
        Webhooks: webhooks,
        EventStream: events,
    }

    is_reached = bool(public_url) or any(channel.has_secret for channel in (channels or {}).values())
    outer = [Middleware(Problems)]
    callers = Callers(turns.keys, api_keys, made_key)
    if not api_keys:
        health = _paths("public")
        open_paths = _paths("signature") + (health if is_reached else ())
        outer.append(Middleware(LoopbackOnly, callers, refusals, open_paths, is_reached, health))
    arriving = ArrivingBytes(turns.clock)
    limits: dict[Access, Middleware] = {
        "key": Middleware(BodyLimit, turns.clock, max_body_bytes, receive_ms, arriving),
        "signature": Middleware(BodyLimit, turns.clock, max_webhook_bytes, receive_ms, arriving),
    }
    signed = Middleware(RefuseUnsigned, webhooks)

    def middleware(endpoints: list[Endpoint]) -> list[Middleware]:
        """What stands in front of a path, outermost first: who may call, in which role, and how large and slow."""
        access = endpoints[0].access
        if access not in limits:
            return []
        role = Middleware(RequireRole, turns, endpoints[0].roles)
        if access == "signature":
            return [role, signed, limits[access]]
        scopes = {endpoint.method: endpoint.scope for endpoint in endpoints if endpoint.scope is not None}
        return [Middleware(RequireKey, callers, refusals, scopes), role, limits[access]]

    routes = {path: _route(rows, turns, instances, middleware(rows)) for path, rows in _by_path().items()}
    app = App(
        routes=list(routes.values()),
        middleware=outer,
        exception_handlers={HTTPException: not_served},
        lifespan=lambda app: _running(turns, events),
    )
    app.own_middleware = len(outer)
    app.busiest = wrap(routes[MESSAGES].app, outer)
    app.router.redirect_slashes = False
    app.state.turns = turns
    app.state.events = events
    app.state.intake = intake
    app.state.needs_key = lambda: callers.are_named or is_reached
    return app


def wrap(app: ASGIApp, middleware: Sequence[Middleware]) -> ASGIApp:
    """`app` with the middleware around it, the first outermost."""
    for cls, arguments, options in reversed(middleware):
        app = cls(app, *arguments, **options)
    return app


def _by_path() -> dict[str, list[Endpoint]]:
    """The endpoints at each path. Starlette tries one path after the other, so those that take messages come first."""
    paths: dict[str, list[Endpoint]] = {}
    for endpoint in sorted(ENDPOINTS, key=lambda endpoint: endpoint.roles != INTAKE_ROLES):
        paths.setdefault(endpoint.path, []).append(endpoint)
    return paths


def _paths(access: Access) -> tuple[str, ...]:
    """How the paths begin that are open to these callers."""
    return tuple({endpoint.path.partition("{")[0] for endpoint in ENDPOINTS if endpoint.access == access})


def _route(
    endpoints: list[Endpoint], turns: TurnTake, instances: Mapping[type, ASGIApp], middleware: list[Middleware]
) -> Route:
    """One route for all methods at a path: Starlette then names all of them to whoever uses another."""
    path, methods = endpoints[0].path, [endpoint.method for endpoint in endpoints]
    handlers = {endpoint.method: endpoint.handler for endpoint in endpoints}
    first = endpoints[0].handler
    if isinstance(first, type):
        return Route(path, instances[first], methods=methods, middleware=middleware)

    async def answer(request: Request) -> Response:
        handler = handlers["GET" if request.method == "HEAD" else request.method]
        response: Response = await handler(turns, request)
        return response

    return Route(path, answer, methods=methods, middleware=middleware)


@asynccontextmanager
async def _running(turns: TurnTake, events: EventStream) -> AsyncIterator[None]:
    if turns.is_running:
        yield
    else:
        async with turns:
            yield
    events.close()
