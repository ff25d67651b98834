"""Talks to a running server over its HTTP API, for the command line. What goes wrong becomes one useful sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx2
import msgspec

from turntake.errors import TurntakeError
from turntake.http.hosts import is_loopback
from turntake.operate.options.groups import Options

# A server on the same network connects at once; it may take longer to list many conversations.
TIMEOUT = httpx2.Timeout(10, read=30)
# The server sends something every 15 s even if nothing happens.
STREAM_TIMEOUT = httpx2.Timeout(10, read=60)


EXAMPLE = Options().own_url


class ServerEvent(NamedTuple):
    """One server-sent event."""

    kind: str
    data: dict[str, Any]


class Client:
    """A server's API. Raises TurntakeError that says what to do."""

    def __init__(self, url: str, key: str = "") -> None:
        self.url = url.rstrip("/")
        self._http = httpx2.Client(**client_options(self.url, key))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        return self._call("GET", path, params={name: value for name, value in query.items() if value})

    def post(self, path: str, body: Any = None) -> Any:
        return self._call("POST", path, json={} if body is None else body)

    def put(self, path: str, body: Any) -> Any:
        return self._call("PUT", path, json=body)

    def patch(self, path: str, body: Any) -> Any:
        return self._call("PATCH", path, json=body)

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path)

    @contextmanager
    def events(self, conversation: str = "") -> Iterator[Iterator[ServerEvent]]:
        """What happens from now on, until the server ends the stream."""
        query = {"conversation": conversation} if conversation else {}
        with (
            explained(self.url),
            self._http.stream("GET", "/v1/events", params=query, timeout=STREAM_TIMEOUT) as stream,
        ):
            if stream.status_code != 200:
                stream.read()
                raise TurntakeError(complaint(stream, self.url))
            parser = EventParser()
            yield (event for line in stream.iter_lines() if (event := parser.feed(line)))

    def _call(self, method: str, path: str, **options: Any) -> Any:
        with explained(self.url):
            response = self._http.request(method, path, **options)
            if response.status_code >= 400:
                raise TurntakeError(complaint(response, self.url))
            return msgspec.json.decode(response.content) if response.content else None


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Puts what can go wrong on the way to a server into a sentence. It holds around `await` too."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout):
        raise TurntakeError(f"No server at {url}: start one with `turntake serve`.") from None
    except httpx2.UnsupportedProtocol:
        raise TurntakeError(f"{url} is not the address of a server; write it like {EXAMPLE}.") from None
    except httpx2.TimeoutException:
        raise TurntakeError(f"{url} does not answer in time: try again, or look at its log.") from None
    except (httpx2.HTTPError, msgspec.DecodeError) as error:
        raise TurntakeError(f"{url} answered strangely ({type(error).__name__}): is it turntake?") from None


def client_options(url: str, key: str = "") -> dict[str, Any]:
    """How a client, synchronous or not, is set up for a server."""
    try:
        host = httpx2.URL(url).host
    except httpx2.InvalidURL as error:
        raise TurntakeError(f"{url} is not the address of a server ({error}); write it like {EXAMPLE}.") from None
    headers = {"authorization": f"Bearer {key}"} if key else {}
    # A proxy from the environment is of no use for this machine itself; and loading certificates takes 0.1 s,
    # which plain HTTP (redirects are not followed) has no use for.
    is_plain = url.startswith("http://")
    how = {"verify": not is_plain, "trust_env": not is_loopback(host)}
    return {"base_url": url, "headers": headers, "timeout": TIMEOUT, **how}


def complaint(response: httpx2.Response, url: str) -> str:
    """What a refusal says, and where the key comes from if it is about that."""
    if response.status_code == 401:
        if "authorization" in response.request.headers:
            return f"{url} does not know this API key: give one of those that the server has, with --key."
        return (
            f"{url} asks for an API key: give it with --key, or set TURNTAKE_API_KEYS. "
            "A key that the server made is found where its store is: call from the folder in which it was started."
        )
    try:
        detail = msgspec.json.decode(response.content)["detail"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"{url} answered {response.status_code} to {response.request.url.path}: is it turntake?"
    return str(detail)


class EventParser:
    """Reads server-sent events line by line; comments, which are heartbeats, give none."""

    def __init__(self) -> None:
        self._kind = ""

    def feed(self, line: str) -> ServerEvent | None:
        name, _, value = line.partition(": ")
        if name == "event":
            self._kind = value
        return ServerEvent(self._kind, msgspec.json.decode(value)) if name == "data" else None
