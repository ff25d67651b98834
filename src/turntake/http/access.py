"""Who may call: holders of an API key, or without keys only programs on this machine.

Webhooks are the exception: platforms call them from anywhere, and each call proves by its signature who sent it.
"""

import hmac
from collections.abc import Collection, Sequence

from starlette._utils import get_route_path
from starlette.types import ASGIApp, Receive, Scope, Send

from turntake.errors import ConfigurationError, Problem
from turntake.http.hosts import is_local_authority, is_loopback
from turntake.service import Role, TurnTake

Headers = dict[bytes, bytes]
FORWARDED = frozenset(
    (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip")
)


class RequireKey:
    """Refuses every request that does not carry one of the keys."""

    def __init__(self, app: ASGIApp, api_keys: Sequence[str]) -> None:
        if not all(key.strip() for key in api_keys):
            raise ConfigurationError("An API key is blank; remove it or give it a value.")
        self._app = app
        self._keys = [key.strip().encode() for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not holds_key(dict(scope["headers"]), self._keys):
            detail = "Send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
            raise Problem(401, detail, headers={"WWW-Authenticate": 'Bearer realm="turntake"'})
        await self._app(scope, receive, send)


class RequireRole:
    """Refuses requests while the service does not run, and those that its role leaves to other processes.

    Senders try again after such a refusal, so that a wrong address costs time and no message.
    """

    def __init__(self, app: ASGIApp, turns: TurnTake, roles: Collection[Role]) -> None:
        self._app = app
        self._turns = turns
        self._roles = roles

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._turns.is_running:
            detail = "TurnTake is not running: run this app with its lifespan, or inside `async with turns:`."
            raise Problem(503, detail, headers={"Retry-After": "1"})
        if self._turns.role not in self._roles:
            detail = (
                f"This process has the role `{self._turns.role}` and takes no messages; nothing was accepted. "
                "Send them to a process with the role `accept` or `all`."
            )
            raise Problem(503, detail, headers={"Retry-After": "1"})
        await self._app(scope, receive, send)


class LoopbackOnly:
    """Stands in front of everything but webhooks while there are no keys.

    It refuses other machines, and pages of other sites that a browser on this machine shows: those come from loopback
    too, whatever host name led the browser here.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not get_route_path(scope).startswith("/webhooks/"):
            refuse_strangers(dict(scope["headers"]), scope.get("client"))
        await self._app(scope, receive, send)


def refuse_open_bind(host: str, api_keys: Sequence[str]) -> None:
    """Without a key, only this machine may reach the service. Raises ConfigurationError."""
    if not api_keys and not is_loopback(host):
        raise ConfigurationError(
            f"Listening on {host or 'every address'} needs an API key, since others could reach it: "
            "set TURNTAKE_API_KEYS, or listen on 127.0.0.1."
        )


def holds_key(headers: Headers, keys: Sequence[bytes]) -> bool:
    """Compares with every key, so that the time it takes does not tell which of them is close."""
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    key = bearer.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
    return sum(hmac.compare_digest(key, ours) for ours in keys) > 0


def refuse_strangers(headers: Headers, client: tuple[str, int] | None) -> None:
    """Raises Problem for callers of other machines: by their address, where it is known, and by the names they use."""
    host = headers.get(b"host", b"")
    if (host and not is_local_authority(host)) or (client and client[0] and not is_loopback(client[0])):
        raise Problem(403, "Without an API key only this machine is served: use 127.0.0.1, or set TURNTAKE_API_KEYS.")
    if not FORWARDED.isdisjoint(headers):
        raise Problem(403, "Without an API key nothing but webhooks passes a proxy: set TURNTAKE_API_KEYS.")
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != host:
        raise Problem(403, "Without an API key web pages of other sites are refused: set TURNTAKE_API_KEYS.")
