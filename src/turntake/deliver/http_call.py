"""One HTTP call within limits: no redirects, no cookies, no compression, a bounded answer, a bounded time.

Every call that turntake makes goes through `HttpCaller`: to an HTTP agent, to a callback, to a platform's API, and
those of `turntake doctor`.

How this works: the answer is read in pieces until it ends or is too long. The client reports each step of a request
as it takes it, so when a call fails we know whether the body had been handed over. If it had not, the other side
cannot have acted on it; if it had, nobody can tell.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.metadata import version
from types import TracebackType
from typing import Self

import httpx2

from turntake.deliver.address_guard import AddressGuard, guarded_transport
from turntake.errors import CallFailed, ConfigurationError
from turntake.platforms.replies import ApiCall, ApiResponse

# Far more than any reply: an answer that goes on after this is a mistake or an attack.
LARGEST_BODY = 64 * 1024
# Below the five seconds after which common servers (uvicorn, Node) close a connection that we might just then use.
KEEPALIVE_S = 4.0
# Enough for every platform account of an installation; more may be open, but are closed after their call.
IDLE_CONNECTIONS = 100
HANDED_OVER = "http11.send_request_body.started"


class HttpCaller:
    """Makes calls over connections that it keeps. `whose` begins the messages of its errors: "The agent"."""

    def __init__(
        self,
        whose: str,
        timeout_ms: int,
        connect_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        guard: AddressGuard | None = None,
    ) -> None:
        """`timeout_ms` bounds a whole call, `connect_ms` the time until there is a connection.

        `guard` says which addresses may be called; without one, whoever makes the calls vouches for them.
        """
        self.whose = whose
        self._timeout_ms = timeout_ms
        self._connect_s = None if connect_ms is None else connect_ms / 1000
        self._client = _client(headers or {}, guard)

    async def call(self, call: ApiCall) -> ApiResponse:
        """What came back, whatever its status. Cancelling closes the connection.

        Raises CallFailed if nothing whole came back in time; it says whether the call was handed over. Raises GiveUp if
        the guard refuses the address.
        """
        steps: list[str] = []
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._answer(call, steps)
        except TimeoutError:
            reason = f"within {self._timeout_ms} ms"
            raise CallFailed(
                f"{self.whose} gave no whole answer {reason}.", reason=reason, is_handed_over=HANDED_OVER in steps
            ) from None
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            name = type(error).__name__
            raise CallFailed(
                f"{self.whose} could not be reached or broke off: {name}: {error}",
                reason=f"({name})",
                is_handed_over=HANDED_OVER in steps,
            ) from None

    async def _answer(self, call: ApiCall, steps: list[str]) -> ApiResponse:
        async def note(step: str, facts: object) -> None:
            steps.append(step)

        request = self._client.build_request(
            call.method,
            call.url,
            content=call.body,
            headers=dict(call.headers),
            timeout=httpx2.Timeout(None, connect=self._connect_s),
            extensions={"trace": note},
        )
        mark = _is_ours.set(True)
        try:
            answer = await self._client.send(request, stream=True)
        finally:
            _is_ours.reset(mark)
        try:
            received = bytearray()
            async for chunk in answer.aiter_raw():
                received += chunk
                if len(received) > LARGEST_BODY:
                    break
        finally:
            await answer.aclose()
        headers = {name.lower(): value for name, value in answer.headers.items()}
        is_cut = len(received) > LARGEST_BODY
        return ApiResponse(answer.status_code, headers, bytes(received[:LARGEST_BODY]), is_cut)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def checked_url(url: str) -> str:
    """The URL, if requests may go there. The message never repeats it, since it may hold a password."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ConfigurationError(f"This URL cannot be read ({error}); write it as https://host/path.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < (parsed.port or 80) < 65536:
        raise ConfigurationError("Only http:// and https:// URLs with a host can be called; write https://host/path.")
    if parsed.userinfo:
        raise ConfigurationError("This URL contains a user or password; remove it and rely on the signature instead.")
    return url


# The client logs every URL that it calls. Ours may hold a token (Telegram's do), so they are kept out of its log.
_is_ours = ContextVar("turntake_is_ours", default=False)


def _is_loggable(record: logging.LogRecord) -> bool:
    return not _is_ours.get()


def _client(headers: Mapping[str, str], guard: AddressGuard | None) -> httpx2.AsyncClient:
    logging.getLogger("httpx2").addFilter(_is_loggable)
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=IDLE_CONNECTIONS, keepalive_expiry=KEEPALIVE_S
    )
    # Compression is not offered: a small body may unpack to a huge one. No cookies: they would tie turns together.
    return httpx2.AsyncClient(
        headers={"user-agent": f"turntake/{version('turntake')}", "accept-encoding": "identity", **headers},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        timeout=None,
        limits=limits,
        transport=guarded_transport(guard, limits) if guard else None,
        follow_redirects=False,
        trust_env=False,
    )
