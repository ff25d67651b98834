"""The HTTP service as one ASGI app."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette._utils import get_route_path
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from turntake.accept.intake import Groups, Intake
from turntake.accept.messages import Activity, Messages
from turntake.accept.webhooks import Channels, Webhooks
from turntake.http.access import Door, LocalOnly, Reception
from turntake.http.conversations import Conversations
from turntake.http.events import EventStream
from turntake.http.health import Readiness, healthz
from turntake.http.letters import DeadLetters
from turntake.http.limits import MAX_BODY_BYTES, MAX_WEBHOOK_BYTES, RECEIVE_MS, Guard
from turntake.http.openapi import openapi
from turntake.http.pages import Welcome, asset
from turntake.http.problem import Problems, not_served
from turntake.http.turns import Turns
from turntake.service import TurnTake

BUSIEST = "/v1/messages"


class Service(Starlette):
    """A Starlette app whose busiest path goes straight to its endpoint, past the general middleware and routes."""

    busiest: ASGIApp
    walls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and self._goes_straight(scope):
            await self.busiest(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def _goes_straight(self, scope: Scope) -> bool:
        """Not past middleware that somebody added to the app."""
        return get_route_path(scope) == BUSIEST and len(self.user_middleware) == self.walls


def create(
    turns: TurnTake,
    *,
    api_keys: Sequence[str] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
    receive_ms: int = RECEIVE_MS,
    channels: Channels | None = None,
    public_url: str = "",
    max_webhook_bytes: int = MAX_WEBHOOK_BYTES,
    groups: Groups = "person",
) -> Service:
    """An app to run or to mount. Its lifespan enters `turns`, unless somebody else already did.

    Starlette does not run the lifespan of a mounted app: enter `turns` in the outer one.
    Each channel is served at `/webhooks/` and its name; `public_url` is where platforms reach the app from outside.
    A server that shuts down calls `app.state.events.close()`, or waits for watchers to leave by themselves.
    """
    events = EventStream(turns)
    door = Middleware(Door, turns, tuple(api_keys))
    guard = Middleware(Guard, turns.clock, max_body_bytes, receive_ms)
    walls, incoming = [door, guard], [door, Middleware(Reception, turns), guard]
    intake = Intake(turns, by_person=groups == "person")
    webhooks = Webhooks(turns, channels or {}, public_url, intake)
    signed = [
        Middleware(Door, turns),
        Middleware(Reception, turns),
        Middleware(Guard, turns.clock, max_webhook_bytes, receive_ms),
    ]
    outer = [Middleware(Problems)] if api_keys else [Middleware(Problems), Middleware(LocalOnly)]
    app = Service(
        routes=[
            *_incoming(turns, incoming),
            *_called(webhooks, signed),
            *_private(turns, events, walls),
            *_public(turns, bool(api_keys)),
        ],
        middleware=outer,
        exception_handlers={HTTPException: not_served},
        lifespan=lambda app: _running(turns, events),
    )
    app.walls = len(outer)
    app.busiest = behind([*outer, *incoming], Messages(turns))
    app.router.redirect_slashes = False
    app.state.turns = turns
    app.state.events = events
    app.state.intake = intake
    return app


def behind(walls: Sequence[Middleware], app: ASGIApp) -> ASGIApp:
    """`app` with every wall around it, the first outermost."""
    for middleware, arguments, options in reversed(walls):
        app = middleware(app, *arguments, **options)
    return app


def _incoming(turns: TurnTake, walls: list[Middleware]) -> list[BaseRoute]:
    return [
        Route(BUSIEST, Messages(turns), methods=["POST"], middleware=walls),
        Route("/v1/activity", Activity(turns), methods=["POST"], middleware=walls),
    ]


def _called(webhooks: Webhooks, walls: list[Middleware]) -> list[BaseRoute]:
    """What platforms call: no key opens these, only the platform's own signature."""
    paths = ("/webhooks/{channel}", "/webhooks/{channel}/{account}")
    return [Route(path, webhooks, methods=["GET", "POST"], middleware=walls) for path in paths]


def _private(turns: TurnTake, events: EventStream, walls: list[Middleware]) -> list[BaseRoute]:
    endpoints = [*Conversations(turns).endpoints(), *Turns(turns).endpoints(), *DeadLetters(turns).endpoints()]
    return [
        Route("/v1/events", events, methods=["GET"], middleware=walls),
        *(Route(e.path, e.answer, methods=e.methods, middleware=walls) for e in endpoints),
    ]


def _public(turns: TurnTake, needs_key: bool) -> list[BaseRoute]:
    return [
        Route("/healthz", healthz),
        Route("/readyz", Readiness(turns).check),
        Route("/openapi.json", openapi),
        Route("/", Welcome(needs_key).page),
        Route("/pages/{name}", asset),
    ]


@asynccontextmanager
async def _running(turns: TurnTake, events: EventStream) -> AsyncIterator[None]:
    if turns.is_running:
        yield
    else:
        async with turns:
            yield
    events.close()
