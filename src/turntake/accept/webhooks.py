"""`/webhooks/{channel}` and `/webhooks/{channel}/{account}`: verify, read, buffer, and only then acknowledge."""

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from turntake.accept.body import read_body
from turntake.accept.intake import Intake
from turntake.accept.refusals import Refusals
from turntake.errors import Forged, Problem, Unreadable
from turntake.observe.observer import Observer
from turntake.platforms.channel import Channel, Request, WebhookAnswer
from turntake.service import TurnTake

log = logging.getLogger("turntake")

NO_CONTENT = 204
LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})

Channels = Mapping[tuple[str, str], Channel]
"""By the channel's name and the account's, which is "" for the only or first one."""


class Webhooks:
    """Answers a platform's call in the platform's own way. Whoever is not the platform learns only that."""

    def __init__(
        self, turns: TurnTake, channels: Channels, public_url: str, intake: Intake, refusals: Refusals
    ) -> None:
        """`public_url` is where platforms reach this server, which some of them sign."""
        self._turns = turns
        self._channels = channels
        self._public_url = public_url.rstrip("/")
        self._intake = intake
        self._refusals = refusals
        self._signed_by = {name: frozenset(map(str.encode, channel.signed_by)) for name, channel in channels.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name, account = self._account(scope)
        request = self._request(scope, await read_body(receive))
        try:
            self._verify(name, account, scope, request)
            delivery = self._channels[name, account].read(request)
        except Unreadable as error:
            self._turns.observers.tell(Observer.refused, name, account, error)
            facts = {"action": "accept", "channel": name, "account": account, "reason": str(error)}
            log.warning("A webhook could not be read", extra=facts)
            raise Problem(400, str(error)) from None
        await self._intake.take(name, account, delivery.events)
        await _answer(send, delivery.answer)

    def refuse_early(self, scope: Scope) -> None:
        """Raises Problem for what needs no body to be refused: no such channel, no secret set, no signature sent."""
        name, account = self._account(scope)
        channel, signed_by = self._channels[name, account], self._signed_by[name, account]
        if scope["method"] == "GET" and not channel.takes_get:
            raise Problem(405, "GET is not possible here.", headers={"Allow": "POST"})
        is_unsigned = bool(signed_by) and signed_by.isdisjoint(dict(scope["headers"]))
        if channel.lacks_secrets or (scope["method"] == "POST" and is_unsigned):
            self._verify(name, account, scope, self._request(scope, b""))

    def _account(self, scope: Scope) -> tuple[str, str]:
        """The channel and the account at this path, if it is served."""
        if scope["method"] == "HEAD":
            raise Problem(405, "HEAD is not possible here.", headers={"Allow": "GET, POST"})
        parts: dict[str, str] = scope["path_params"]
        name = parts["channel"], parts.get("account", "")
        if name not in self._channels:
            problem = Problem(404, "No channel is served here; `turntake channels` lists those that are.")
            raise self._refusals.answer(problem, scope.get("client"), "A webhook of no channel was refused", {})
        return name

    def _verify(self, name: str, account: str, scope: Scope, request: Request) -> None:
        """Returns if the platform sent the request; else raises a Problem."""
        channel = self._channels[name, account]
        try:
            self._check_address(channel, request)
            channel.verify(request, self._turns.clock.wall())
        except Forged as error:
            reason = _for_account(str(error), name, account)
            self._turns.observers.tell(Observer.refused, name, account, error)
            facts = {"action": "accept", "channel": name, "account": account, "reason": reason}
            problem = Problem(error.status, reason)
            raise self._refusals.answer(problem, scope.get("client"), "A webhook was refused", facts) from None

    def _request(self, scope: Scope, body: bytes) -> Request:
        headers: dict[str, str] = {}
        for raw_name, raw in scope["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return Request(scope["method"], self._url(scope, headers), headers, body)

    def _url(self, scope: Scope, headers: Mapping[str, str]) -> str:
        base = self._public_url or f"{scope['scheme']}://{headers.get('host', '')}"
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope["query_string"]
        return base + (path.partition(b"?")[0] + (b"?" + query if query else b"")).decode("latin-1")

    def _check_address(self, channel: Channel, request: Request) -> None:
        """Where the signature covers the address, the caller must not say what that is: a request that the platform
        signed for somebody else would be good here. Nobody signs for an address of this machine alone but we."""
        if channel.needs.signed_url and not self._public_url and not _is_local(request.url):
            raise Forged("The signature covers the address, which is not known here: set TURNTAKE_PUBLIC_URL to it.")


class RefuseUnsigned:
    """Stands in front of the limits on the body, so that nobody's megabytes are read only to be refused."""

    def __init__(self, app: ASGIApp, webhooks: Webhooks) -> None:
        self._app = app
        self._webhooks = webhooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._webhooks.refuse_early(scope)
        await self._app(scope, receive, send)


def _is_local(url: str) -> bool:
    try:
        return urlsplit(url).hostname in LOCAL
    except ValueError:
        return False


def _for_account(advice: str, name: str, account: str) -> str:
    """The advice with the variables of a named account, which channels do not know of."""
    own = f"TURNTAKE_{name}_".upper()
    return advice.replace(own, f"{own}{account.replace('-', '_')}_".upper()) if account else advice


async def _answer(send: Send, answer: WebhookAnswer) -> None:
    headers: list[Any] = [] if answer.status == NO_CONTENT else [(b"content-length", b"%d" % len(answer.body))]
    if answer.body:
        headers.append((b"content-type", answer.content_type.encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
