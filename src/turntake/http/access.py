"""Who may call: holders of an API key, or without keys only programs on this machine.

Webhooks are the exception: platforms call them from anywhere, and each call proves by its signature who sent it.

How it works without keys: a proxy on this machine makes strangers look like programs of this machine, and no header
tells them apart for certain. So once anything says that others reach this server (a public address, the secret of a
channel), only webhooks and health are served without the key that `turntake serve` made. Until then programs on this
machine need no key; whatever shows that a request came from elsewhere refuses it. Where the kernel tells, programs of
other users are refused too: a proxy has a user of its own.

Whatever lets a request pass returns what the app inside returns: a coroutine of its own would cost every request time.
"""

import re
from collections.abc import Awaitable, Collection, Mapping
from functools import lru_cache

from starlette._utils import get_route_path
from starlette.types import ASGIApp, Receive, Scope, Send

from turntake.accept.caller import CALLER
from turntake.accept.refusals import Refusals
from turntake.argument_checks import Role
from turntake.errors import ConfigurationError, Problem
from turntake.http.callers import Callers, key_in
from turntake.http.hosts import is_local_authority, is_loopback
from turntake.http.made_key import is_from_another_site
from turntake.http.peer_user import CONNECTION
from turntake.rules.api_keys import Caller, KeyScope
from turntake.service import TurnTake

Headers = dict[bytes, bytes]
# What proxies, tunnels and content delivery networks add.
# It is searched in the names of all headers, one a line: to look at each name by itself takes four times as long.
FORWARDED = re.compile(
    rb"^(?:(?:(?:x-)?forwarded|via|cdn-loop|x-real-ip|(?:[a-z-]+-)?client-ip)$"
    rb"|x-forwarded-|x-original-|x-envoy-|cf-|fastly-|tailscale-|fly-|ngrok-|x-(?:amzn|appengine|azure|vercel)-)",
    re.MULTILINE,
)
LONGEST_KEPT = 1_024  # bytes; what strangers send must not fill the memory
ASK_FOR_KEY = "Send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
WRONG_KEY = "This API key is unknown or was revoked: send another one, or make one with `turntake keys new`."
BEHIND_PROXY = "Without an API key nothing but webhooks passes a proxy: make one with `turntake keys new`."
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="turntake"'}


class RequireKey:
    """Refuses every request that does not carry a key with the scope of its endpoint, and notes who sends the others.

    `scopes` are those of the methods at a path.
    """

    def __init__(self, app: ASGIApp, callers: Callers, refusals: Refusals, scopes: Mapping[str, KeyScope]) -> None:
        self._app = app
        self._callers = callers
        self._refusals = refusals
        self._scopes = {**scopes, "HEAD": scopes["GET"]} if "GET" in scopes else scopes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        caller = scope.get(CALLER) or self._callers.of(scope)
        if caller is None:
            raise self._refused(scope)
        needed = self._scopes[scope["method"]]
        if not caller.may(needed):
            raise Problem(403, _lacking(caller, needed))
        scope[CALLER] = caller
        return self._app(scope, receive, send)

    def _refused(self, scope: Scope) -> Problem:
        if self._callers.are_unknown:
            detail = "The store cannot be asked for its API keys now; ask again after the seconds in Retry-After."
            return Problem(503, detail, headers={"Retry-After": "1"})
        problem = Problem(401, WRONG_KEY if key_in(dict(scope["headers"])) else ASK_FOR_KEY, headers=CHALLENGE)
        return self._refusals.answer(problem, scope.get("client"), "A request without a right API key", {})


class RequireRole:
    """Refuses requests while the service does not run, and those that its role leaves to other processes.

    Senders try again after such a refusal, so that a wrong address costs time and no message.
    """

    def __init__(self, app: ASGIApp, turns: TurnTake, roles: Collection[Role]) -> None:
        self._app = app
        self._turns = turns
        self._roles = roles

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if not self._turns.is_running:
            detail = "TurnTake is not running: run this app with its lifespan, or inside `async with turns:`."
            raise Problem(503, detail, headers={"Retry-After": "1"})
        if self._turns.role not in self._roles:
            detail = (
                f"This process has the role `{self._turns.role}` and takes no messages; nothing was accepted. "
                "Send them to a process with the role `accept` or `all`."
            )
            raise Problem(503, detail, headers={"Retry-After": "1"})
        return self._app(scope, receive, send)


class LoopbackOnly:
    """Stands in front of everything while there are no API keys; what lies at `open_paths` passes.

    It refuses other machines, and pages of other sites that a browser on this machine shows: those come from loopback
    too, whatever host name led the browser here. If others reach this server, it refuses everybody. Whoever has a key
    or a completion token passes in any case. Once somebody made an API key all pass, and `RequireKey` asks for one.
    """

    def __init__(
        self,
        app: ASGIApp,
        callers: Callers,
        refusals: Refusals,
        open_paths: tuple[str, ...] = (),
        is_reached: bool = False,
        health_paths: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._callers = callers
        self._refusals = refusals
        self._open_paths = open_paths
        self._is_reached = is_reached
        self._health_paths = health_paths

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and not get_route_path(scope).startswith(self._open_paths):
            if (response := self._callers.login(scope)) is not None:
                return response(scope, receive, send)
            if not self._callers.are_named:
                self._refuse_strangers(scope)
        return self._app(scope, receive, send)

    def _refuse_strangers(self, scope: Scope) -> None:
        if self._is_reached:
            problem: Problem | None = _reached(self._callers.has_made_key)
        else:
            problem = stranger(scope, self._health_paths)
        if problem is None:
            return
        caller = self._callers.find(scope)
        if caller is None:
            sentence = "A request without an API key was refused"
            raise self._refusals.answer(problem, scope.get("client"), sentence, {"status": problem.status})
        # It passes for what it carries, so it may do no more than that allows.
        scope[CALLER] = caller


def refuse_open_bind(host: str, has_keys: bool) -> None:
    """Without a key, only this machine may reach the service. Raises ConfigurationError."""
    if not has_keys and not is_loopback(host):
        raise ConfigurationError(
            f"Listening on {host or 'every address'} needs an API key, since others could reach it: "
            "make one with `turntake keys new`, or listen on 127.0.0.1."
        )


def stranger(scope: Scope, health_paths: tuple[str, ...] = ()) -> Problem | None:
    """Why a request is not of a program on this machine: by its address, where known, and by what its headers show.

    A program of another user may be a proxy; what lies at `health_paths` it may ask all the same.
    """
    headers: Headers = dict(scope["headers"])
    client = scope.get("client")
    if detail := _shown_by(b"\n".join(headers), headers.get(b"host", b""), client[0] if client else ""):
        return Problem(403, detail)
    if len(headers) < len(scope["headers"]) and sum(name == b"host" for name, _ in scope["headers"]) > 1:
        return Problem(400, "There are two Host headers; send one.")
    if scope.get("http_version") == "1.0":
        # nginx speaks HTTP/1.0 to us unless it is told otherwise, and then says nothing about the caller.
        return Problem(403, BEHIND_PROXY)
    if (b"origin" in headers or b"sec-fetch-site" in headers) and is_from_another_site(scope["method"], headers):
        return Problem(
            403, "Without an API key web pages of other sites are refused: make one with `turntake keys new`."
        )
    connection = scope.get(CONNECTION)
    if connection is not None and connection.is_another_users and get_route_path(scope) not in health_paths:
        detail = (
            "Without an API key only programs of the user who runs it are served: make one with `turntake keys new`."
        )
        return Problem(403, detail)
    return None


def _shown_by(names: bytes, host: bytes, address: str) -> str:
    """What the names of the headers, the Host and the caller's address say against it; empty if nothing."""
    is_kept = len(names) + len(host) <= LONGEST_KEPT
    return _remembered(names, host, address) if is_kept else _remembered.__wrapped__(names, host, address)


@lru_cache(maxsize=256)  # callers send the same each time
def _remembered(names: bytes, host: bytes, address: str) -> str:
    if not is_local_authority(host) or (address and not is_loopback(address)):
        return "Without an API key only this machine is served: use 127.0.0.1, or make a key with `turntake keys new`."
    return BEHIND_PROXY if FORWARDED.search(names) else ""


def _lacking(caller: Caller, needed: KeyScope) -> str:
    if caller.turn_id:
        return "A completion token completes, fails or extends its own turn; for anything else send an API key."
    return (
        f"This API key ({caller.name}) lacks the scope `{needed}`: use another, or make one with "
        f"`turntake keys new NAME --scope {needed}`."
    )


def _reached(has_made_key: bool) -> Problem:
    """Why nobody is served without a key: others can reach this server."""
    ours = (
        " On this machine use the key that `turntake serve` made, in the file beside the store that ends in .key;"
        " in a browser, write ?key=… after the address."
    )
    detail = (
        "A channel's secret or a public address is set, so others may reach this server, and all but webhooks needs an "
        f"API key: make one with `turntake keys new`.{ours if has_made_key else ''}"
    )
    return Problem(401, detail, headers=CHALLENGE)
