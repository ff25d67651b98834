"""Limits on what a request may send, and on who may send one."""

import socket
from collections.abc import Iterator

import httpx2
import pytest

from harness.servers import Served, calling, serving, talking
from turntake import ConfigurationError, Rules, TurnTake
from turntake.http.access import refuse_open_bind

GOOD = {"conversation": "ana", "id": "1", "text": "hi"}


def accepting() -> TurnTake:
    return TurnTake("memory://", rules=Rules(silence_ms=60_000), role="accept")


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving(accepting(), receive_ms=50) as server:
        yield server


def said(server: Served, *pieces: bytes) -> bytes:
    """What the server says to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def is_alive(server: Served) -> bool:
    return httpx2.post(f"{server.url}/v1/messages", json=GOOD).status_code == 202


HEAD = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (HEAD, b"Content-Length: 100\r\n\r\n", b'{"conver'),
        (HEAD, b"Content-Length: 100\r\n\r\n"),
        (HEAD, b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\n[{}\r\n"),
    ],
    ids=["trickles", "never begins", "never ends"],
)
def test_a_body_that_trickles_is_cut(server: Served, pieces: tuple[bytes, ...]) -> None:
    """The sender is told, the connection ends, and the server serves others."""
    answer = said(server, *pieces)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in answer
    assert b"nothing was accepted" in answer
    assert is_alive(server)


def test_two_megabytes_are_refused(server: Served) -> None:
    """Whether the length is announced or not; the sender gets to read why."""
    body = b"x" * 2_000_000
    for content in (body, iter([body[:1_000_000], body[1_000_000:]])):
        response = httpx2.post(f"{server.url}/v1/messages", content=content)
        assert response.status_code == 413
        assert "1048576 bytes" in response.json()["detail"]
        assert response.headers["connection"] == "close"
    assert is_alive(server)


def test_an_absurd_length_is_refused_unread(server: Served) -> None:
    """Nobody waits for a terabyte."""
    answer = said(server, HEAD, b"Content-Length: 1099511627776\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert is_alive(server)


def test_endless_chunks_are_refused(server: Served) -> None:
    """A body without an announced length has the same limit."""
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                connection.sendall(chunk)
        except OSError:
            pass
    assert is_alive(server)


def test_a_sender_who_leaves_is_forgotten(server: Served) -> None:
    """Half a body stores nothing."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"conver')
    assert is_alive(server)


def test_a_body_of_exactly_the_limit_is_read() -> None:
    """The limit is the last size that works."""
    with talking(accepting(), max_body_bytes=100) as client:
        assert client.post("/v1/messages", content=b" " * 100).status_code == 400
        assert client.post("/v1/messages", content=b" " * 101).status_code == 413


async def test_keys_open_the_door() -> None:
    """Any configured key does, in either header; nothing else does."""
    turns = accepting()
    async with turns, calling(turns.asgi(api_keys=["first", "sécond"])) as client:
        for headers in ({"Authorization": "Bearer first"}, {"authorization": "bearer  first"}, {"X-API-Key": "first"}):
            assert (await client.get("/v1/conversations", headers=headers)).status_code == 200
        second = [(b"x-api-key", "sécond".encode())]
        assert (await client.get("/v1/conversations", headers=second)).status_code == 200
        for headers in (
            {},
            {"Authorization": "Bearer "},
            {"Authorization": "Bearer"},
            {"Authorization": "Basic first"},
            {"Authorization": "Bearer fir"},
            {"X-API-Key": ""},
            {"X-API-Key": "third"},
        ):
            response = await client.get("/v1/conversations", headers=headers)
            assert response.status_code == 401
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert response.headers["content-type"] == "application/problem+json"


async def test_every_private_route_asks_for_a_key() -> None:
    """Nothing under /v1 is open; what tells strangers nothing is."""
    turns = accepting()
    app = turns.asgi(api_keys=["secret"])
    async with turns, calling(app) as client:
        for route in app.routes:
            path, (method, *_) = route.path, sorted(route.methods - {"HEAD"})  # type: ignore[attr-defined]
            path_asked = path.replace("{name}", "welcome.css").replace("{channel}", "nobody")
            status = (await client.request(method, path_asked)).status_code
            expected = 401 if path.startswith("/v1/") else 404 if path.startswith("/webhooks/") else 200
            assert (path, status) == (path, expected)


def test_a_blank_key_is_refused() -> None:
    """It would open the door to everybody."""
    with pytest.raises(ConfigurationError, match="blank"):
        accepting().asgi(api_keys=["good", " "])


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "127.8.9.1", "[::1]:80", "a.localhost"])
async def test_without_keys_this_machine_is_served(host: str) -> None:
    """Under any of its own names, and to its own pages."""
    turns = accepting()
    async with turns, calling(turns.asgi()) as client:
        assert (await client.get("/v1/conversations", headers={"Host": host})).status_code == 200
        own = {"Host": host, "Origin": f"http://{host}"}
        assert (await client.post("/v1/messages", headers=own, json=GOOD)).status_code == 202


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8080"},
        {"Host": "192.168.0.7"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "[fe80::1]"},
        {"Host": "127.0.0.1:8080", "Origin": "https://evil.example"},
        {"Host": "127.0.0.1:8080", "Origin": "http://127.0.0.1:3000"},
        {"Host": "127.0.0.1:8080", "Origin": "null"},
        {"Host": "127.0.0.1:8080", "Origin": ""},
    ],
)
async def test_without_keys_strangers_are_refused(headers: dict[str, str]) -> None:
    """Neither a name that was made to point here, nor another site's page, gets in."""
    turns = accepting()
    async with turns, calling(turns.asgi()) as client:
        response = await client.post("/v1/messages", headers=headers, json=GOOD)
        assert response.status_code == 403
        assert response.headers["content-type"] == "application/problem+json"


def test_an_open_bind_needs_a_key() -> None:
    """Others could reach it; the error says what to do."""
    for host in ("127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]"):
        refuse_open_bind(host, [])
    for host in ("0.0.0.0", "::", "", "192.168.0.7", "example.org"):
        refuse_open_bind(host, ["secret"])
        with pytest.raises(ConfigurationError, match="TURNTAKE_API_KEYS"):
            refuse_open_bind(host, [])
