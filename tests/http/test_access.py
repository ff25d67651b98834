"""Who may call: holders of a key, or without keys only this machine."""

import pytest

from harness.servers import calling
from turntake import ConfigurationError, Rules, TurnTake
from turntake.http.access import refuse_open_bind

GOOD = {"conversation": "ana", "id": "1", "text": "hi"}


def accepting() -> TurnTake:
    return TurnTake("memory://", rules=Rules(silence_ms=30_000), role="accept")


async def test_any_key_is_enough() -> None:
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
    """Everybody could send it."""
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
        {"Host": "localhost", "Origin": "https://evil-localhost"},
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


@pytest.mark.parametrize(
    ("client", "status"),
    [
        (("127.0.0.1", 5), 200),
        (("127.8.9.1", 5), 200),
        (("::1", 5), 200),
        (("::ffff:127.0.0.1", 5), 200),
        (("", 0), 200),  # a Unix socket has no address, and is of this machine
        (("192.168.0.7", 5), 403),
        (("fe80::1", 5), 403),
        (("::ffff:192.168.0.7", 5), 403),
    ],
)
async def test_without_keys_other_machines_are_refused_whatever_they_call_us(
    client: tuple[str, int], status: int
) -> None:
    """Any host name can be written into a header; the address of a connection cannot."""
    turns = accepting()
    async with turns, calling(turns.asgi(), client=client) as caller:
        assert (await caller.get("/v1/conversations", headers={"Host": "localhost"})).status_code == status
        answer = await caller.post("/v1/messages", headers={"Host": "localhost"}, json=GOOD)
        assert answer.status_code == (202 if status == 200 else 403)


def test_an_open_bind_needs_a_key() -> None:
    """Others could reach it; the error says what to do."""
    for host in ("127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]"):
        refuse_open_bind(host, [])
    for host in ("0.0.0.0", "::", "", "192.168.0.7", "example.org"):
        refuse_open_bind(host, ["secret"])
        with pytest.raises(ConfigurationError, match="TURNTAKE_API_KEYS"):
            refuse_open_bind(host, [])
