"""Who may come in: holders of a key, or without keys only this machine's own programs."""

import hmac
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address

from starlette._utils import get_route_path
from starlette.types import ASGIApp, Receive, Scope, Send

from turntake.errors import ConfigurationError, Problem
from turntake.service import TurnTake

Headers = dict[bytes, bytes]
FORWARDED = frozenset(
    (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip")
)


class Door:
    """In front of every private route."""

    def __init__(self, app: ASGIApp, turns: TurnTake, api_keys: Sequence[str] = ()) -> None:
        if not all(key.strip() for key in api_keys):
            raise ConfigurationError("An API key is blank; remove it or give it a value.")
        self._app = app
        self._turns = turns
        self._keys = [key.strip().encode() for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._keys and not holds_key(dict(scope["headers"]), self._keys):
            detail = "Send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
            raise Problem(401, detail, headers={"WWW-Authenticate": 'Bearer realm="turntake"'})
        if not self._turns.is_running:
            detail = "TurnTake is not running: run this app with its lifespan, or inside `async with turns:`."
            raise Problem(503, detail, headers={"Retry-After": "1"})
        await self._app(scope, receive, send)


class Reception:
    """In front of what takes messages in: where the role is only to work, they are sent elsewhere.

    The refusal is one that senders try again after, so that a wrong address costs time and no message.
    """

    def __init__(self, app: ASGIApp, turns: TurnTake) -> None:
        self._app = app
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._turns.role == "work":
            detail = (
                "This process has the role `work` and takes no messages; nothing was accepted. "
                "Send them to a process with the role `accept` or `all`."
            )
            raise Problem(503, detail, headers={"Retry-After": "1"})
        await self._app(scope, receive, send)


class LocalOnly:
    """In front of everything while there are no keys: no other site's page comes in, whatever name led it here.

    Webhooks pass: they come through a proxy or a tunnel, under any name, and each proves who sent it.
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
    """Compares with every key, so that the time taken tells nothing."""
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    given = bearer.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
    return sum(hmac.compare_digest(given, key) for key in keys) > 0


def refuse_strangers(headers: Headers, client: tuple[str, int] | None) -> None:
    """By the address they come from, where it is known, and by the names they use."""
    host = headers.get(b"host", b"")
    if (host and not is_local_authority(host)) or (client and client[0] and not is_loopback(client[0])):
        raise Problem(403, "Without an API key only this machine is served: use 127.0.0.1, or set TURNTAKE_API_KEYS.")
    if not FORWARDED.isdisjoint(headers):
        raise Problem(403, "Without an API key nothing but webhooks passes a proxy: set TURNTAKE_API_KEYS.")
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != host:
        raise Problem(403, "Without an API key web pages of other sites are refused: set TURNTAKE_API_KEYS.")


@lru_cache(maxsize=64)
def is_local_authority(authority: bytes) -> bool:
    """Whether a Host header names this machine."""
    host = authority.decode("latin-1").lower()
    name = host.partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    name = host.lower().strip("[]").rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:
        return False
