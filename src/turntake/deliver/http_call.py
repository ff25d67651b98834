"""One signed HTTP request and its answer, within limits: no redirects, a bounded size, a bounded total time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Container, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.metadata import version

import httpx2
import msgspec

from turntake.clock import Clock, SystemClock
from turntake.deliver.cloudevents import CONTENT_TYPE
from turntake.errors import CallFailed, ConfigurationError, GiveUp, RetryLater
from turntake.standard_webhooks import Signer

LARGEST_BODY = 64 * 1024
EXCERPT = 200
SHORTEST_WAIT_MS = 500
# Below the five seconds after which common servers (uvicorn, Node) close a connection that we might just then use.
KEEPALIVE_S = 4.0


class Response(msgspec.Struct, frozen=True):
    """What came back. `is_cut` if the body went on after `LARGEST_BODY` bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False

    @property
    def excerpt(self) -> str:
        """The beginning of the body on one line. It may quote a person, so it never goes into a log."""
        return " ".join(self.body[: 4 * EXCERPT].decode("utf-8", "replace").split())[:EXCERPT]


class Exchange:
    """Talks to one URL, over connections it keeps. `whose` begins the messages of its errors: "The agent"."""

    def __init__(
        self,
        url: str,
        whose: str,
        *,
        secrets: str = "",
        timeout_ms: int = 120_000,
        retry_ms: int = 5_000,
        clock: Clock | None = None,
    ) -> None:
        """`retry_ms` is the pause where the other side asks for one and does not say how long."""
        self._url = checked(url)
        self._whose = whose
        self._signer = Signer(secrets)
        self._timeout_ms = timeout_ms
        self._retry_ms = retry_ms
        self._clock = clock or SystemClock()
        self._client = client({"content-type": CONTENT_TYPE, "accept": "application/json, text/plain"})

    async def post(self, id: str, event: msgspec.Struct, headers: Mapping[str, str] | None = None) -> Response:
        """Sends the event and reads the answer, whatever its status. Cancelling closes the connection."""
        body = msgspec.json.encode(event)
        signed = self._signer.headers(id, body, self._clock.now())
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._exchange(body, {**signed, **(headers or {})})
        except TimeoutError:
            raise CallFailed(f"{self._whose} gave no whole answer within {self._timeout_ms} ms.") from None

    def error_in(self, response: Response, passing: Container[int] = ()) -> Exception:
        """What a status other than 2xx means. Those in `passing` are failures, although a 4xx is usually final."""
        status, excerpt = response.status, response.excerpt
        said = f"{self._whose} answered {status}" + (f": {excerpt}" if excerpt else ".")
        if status in (429, 503):
            wait_ms = retry_after_ms(response.headers.get("retry-after"), self._clock.now(), self._retry_ms)
            return RetryLater(wait_ms / 1000, said)
        if 300 <= status < 400:
            return GiveUp(f"{self._whose} answered {status}; redirects are refused, configure the final URL.")
        if 400 <= status < 500 and status not in passing:
            return GiveUp(said)
        return CallFailed(said)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _exchange(self, body: bytes, headers: dict[str, str]) -> Response:
        request = self._client.build_request("POST", self._url, content=body, headers=headers)
        async with answer_to(request, self._client) as answer:
            received = bytearray()
            async for chunk in answer.aiter_raw():
                received += chunk
                if len(received) > LARGEST_BODY:
                    return Response(answer.status_code, answer.headers, bytes(received[:LARGEST_BODY]), is_cut=True)
            return Response(answer.status_code, answer.headers, bytes(received))


@asynccontextmanager
async def answer_to(request: httpx2.Request, by: httpx2.AsyncClient) -> AsyncIterator[httpx2.Response]:
    """The answer as it comes in. Its address is kept out of the client's own log, since it may hold a token."""
    mark = _is_ours.set(True)
    try:
        answer = await by.send(request, stream=True)
    finally:
        _is_ours.reset(mark)
    try:
        yield answer
    finally:
        await answer.aclose()


_is_ours = ContextVar("turntake_is_ours", default=False)


def _is_loggable(record: logging.LogRecord) -> bool:
    return not _is_ours.get()


def checked(url: str) -> str:
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


def retry_after_ms(header: str | None, now: int, default_ms: int) -> int:
    """How long a `Retry-After` asks to wait, in seconds or until a date; never so short that retries become a storm."""
    if header is None:
        return default_ms
    if header.strip().isdecimal():
        return max(int(header) * 1000, SHORTEST_WAIT_MS)
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return default_ms
    return max(round(until.timestamp() * 1000) - now, SHORTEST_WAIT_MS)


def client(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """A client whose connections are kept, for requests that bring their own time limits."""
    logging.getLogger("httpx2").addFilter(_is_loggable)
    # Compression is not offered: a small body may unpack to a huge one. No cookies: they would tie turns together.
    return httpx2.AsyncClient(
        headers={"user-agent": f"turntake/{version('turntake')}", "accept-encoding": "identity", **headers},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        timeout=None,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=KEEPALIVE_S),
        follow_redirects=False,
        trust_env=False,
    )
