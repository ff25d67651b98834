"""A platform's API as a real HTTP server on a free port: it checks what it is sent, counts, and refuses when told."""

import json
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

PATIENCE_S = 20.0


@dataclass(frozen=True)
class FakeRequest:
    """One call as it came. Header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def form(self) -> dict[str, list[str]]:
        return parse_qs(self.body.decode(), keep_blank_values=True)


@dataclass(frozen=True)
class FakeAnswer:
    """What the platform answers. `silent_until` keeps it from answering at all before that is set."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    silent_until: Event | None = None


class Platform:
    """Subclasses say in `answer` how the platform answers a call. `calls` are all that came, in order.

    `next` are answers to give first, whatever is asked; `sent` are the texts that were taken, in order, by chat.
    """

    def __init__(self) -> None:
        self.calls: list[FakeRequest] = []
        self.next: deque[FakeAnswer] = deque()
        self.sent: list[tuple[str, str]] = []
        self._news = Condition()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """Where its API begins: what TURNTAKE_<CHANNEL>_API_BASE is set to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        raise NotImplementedError

    def took(self, chat: str, text: str) -> None:
        """Notes a message that reached the person."""
        self.sent.append((chat, text))

    def wait_for(self, count: int) -> list[tuple[str, str]]:
        """What was sent, once there are so many."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.sent) >= count, PATIENCE_S), f"only {len(self.sent)} were sent"
            return list(self.sent)

    def wait_for_calls(self, count: int) -> list[FakeRequest]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.calls) >= count, PATIENCE_S), f"only {len(self.calls)} calls"
            return list(self.calls)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        platform = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                said = platform._heard(FakeRequest(self.command, self.path, headers, body))
                if said.silent_until is not None:
                    said.silent_until.wait(PATIENCE_S)
                    self.close_connection = True
                    return
                raw = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
                self.send_response(said.status)
                for name, value in {"content-type": "application/json", **said.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_POST = do_GET = do_PATCH = do_PUT = do_DELETE = _serve

            def log_message(self, format: str, *args: Any) -> None:
                return None

        return Handler

    def _heard(self, asked: FakeRequest) -> FakeAnswer:
        with self._news:
            self.calls.append(asked)
            said = self.next.popleft() if self.next else self.answer(asked)
            self._news.notify_all()
            return said


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller who gave up and hung up is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def query_of(asked: FakeRequest) -> dict[str, list[str]]:
    return parse_qs(urlsplit(asked.path).query, keep_blank_values=True)


@contextmanager
def silence() -> Iterator[FakeAnswer]:
    """An answer that never comes, until the end of the test."""
    over = Event()
    try:
        yield FakeAnswer(silent_until=over)
    finally:
        over.set()
