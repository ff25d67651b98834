"""Who may call: holders of a key, or without keys only this machine."""

from typing import Any

import pytest

from harness.platforms.word_channel import WordChannel
from harness.servers import calling
from turntake import ConfigurationError, Rules, TurnTake
from turntake.http.access import _remembered, refuse_open_bind, stranger
from turntake.http.hosts import _is_local_authority, _is_loopback, is_local_authority, is_loopback

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
        refuse_open_bind(host, has_keys=False)
    for host in ("0.0.0.0", "::", "", "192.168.0.7", "example.org"):
        refuse_open_bind(host, has_keys=True)
        with pytest.raises(ConfigurationError, match="turntake keys new"):
            refuse_open_bind(host, has_keys=False)


KNOCK = {("knock", ""): WordChannel({"word": "sesame"})}
MADE = "the-key-that-was-made-at-the-first-start"
EVERYTHING = ("/v1/conversations", "/", "/openapi.json", "/pages/welcome.css", "/nothing")


@pytest.mark.parametrize("reached", [{"channels": KNOCK}, {"public_url": "https://bot.example"}])
async def test_whoever_others_reach_serves_only_webhooks_without_a_key(reached: dict[str, Any]) -> None:
    """nginx as it comes says nothing of the caller: a stranger looks like a program on this machine."""
    turns = accepting()
    async with turns, calling(turns.asgi(**reached)) as client:
        for path in EVERYTHING:
            response = await client.get(path)
            assert (path, response.status_code) == (path, 401)
            assert "turntake keys new" in response.json()["detail"]
        assert (await client.post("/v1/messages", json=GOOD)).status_code == 401
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz", headers={"Host": "bot.example", "Via": "1.1 x"})).status_code == 200
        webhook = await client.post("/webhooks/knock", content=b"[]", headers={"x-word": "sesame"})
        assert webhook.status_code == (200 if "channels" in reached else 404)


async def test_a_channel_without_its_secret_is_not_meant_for_others() -> None:
    turns = accepting()
    async with turns, calling(turns.asgi(channels={("knock", ""): WordChannel({})})) as client:
        assert (await client.get("/v1/conversations")).status_code == 200


async def test_the_made_key_opens_everything() -> None:
    """Also to those who come from elsewhere; a wrong one opens nothing."""
    turns = accepting()
    for reached in ({"channels": KNOCK}, {}):
        async with turns, calling(turns.asgi(made_key=MADE, **reached)) as client:
            for headers in ({"Authorization": f"Bearer {MADE}"}, {"X-API-Key": MADE, "Host": "bot.example"}):
                assert (await client.get("/v1/conversations", headers=headers)).status_code == 200
            wrong = {"X-API-Key": MADE[:-1], "Host": "bot.example"}
            assert (await client.get("/v1/conversations", headers=wrong)).status_code == (401 if reached else 403)


async def test_the_printed_link_lets_a_browser_in() -> None:
    """The key leaves the address at once, and the cookie does not hold it."""
    turns = accepting()
    async with turns, calling(turns.asgi(made_key=MADE, channels=KNOCK)) as client:
        assert (await client.get("/?key=wrong")).status_code == 401
        assert (await client.get("/v1/conversations", params={"key": MADE})).status_code == 401
        led = await client.get("/", params={"key": MADE})
        assert (led.status_code, led.headers["location"]) == (303, "/")
        cookie = led.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert MADE not in cookie
        assert (await client.get("/")).status_code == 200
        assert (await client.get("/pages/welcome.js")).status_code == 200
        own = {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1"}
        assert (await client.post("/v1/messages", json=GOOD, headers=own)).status_code == 202


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://127.0.0.1:3000"}],
)
async def test_the_cookie_counts_only_for_our_own_pages(headers: dict[str, str]) -> None:
    """To a browser every server on this machine is the same site, so it sends the cookie for their pages too."""
    turns = accepting()
    async with turns, calling(turns.asgi(made_key=MADE, channels=KNOCK)) as client:
        await client.get("/", params={"key": MADE})
        assert (await client.get("/v1/conversations")).status_code == 200
        assert (await client.post("/v1/messages", json=GOOD, headers=headers)).status_code == 401


@pytest.mark.parametrize(
    "name",
    [
        "Forwarded",
        "Via",
        "X-Forwarded-For",
        "X-Forwarded-Server",
        "X-Forwarded-Port",
        "X-Real-IP",
        "CF-Connecting-IP",
        "True-Client-IP",
        "X-Client-IP",
        "X-Original-URL",
        "Tailscale-User-Login",
        "CDN-Loop",
        "Client-IP",
        "WL-Proxy-Client-IP",
        "Fly-Client-IP",
        "X-Azure-ClientIP",
        "X-Amzn-Trace-Id",
        "X-Vercel-Id",
        "Ngrok-Trace-Id",
        "X-Appengine-User-IP",
        "X-Envoy-External-Address",
    ],
)
async def test_without_keys_whatever_a_proxy_adds_is_refused(name: str) -> None:
    turns = accepting()
    async with turns, calling(turns.asgi()) as client:
        assert (await client.get("/v1/conversations", headers={name: "x"})).status_code == 403


async def test_without_keys_http_1_0_is_refused() -> None:
    """It is what nginx speaks unless it is told otherwise; programs speak 1.1."""
    assert stranger(asked("1.0")) is not None
    assert stranger(asked("1.1")) is None


def asked(version: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    """A request of this machine, as an ASGI server describes it."""
    named = [(b"host", b"127.0.0.1:8080"), *headers]
    return {"method": "GET", "http_version": version, "client": ("127.0.0.1", 5), "headers": named}


@pytest.mark.parametrize(
    "host",
    [b"[::1].evil.example", b"127.0.0.1:80@evil.example", b"localhost:evil.example", b"", b"127.0.0.1:", b"a b"],
)
async def test_a_host_that_nobody_writes_is_not_ours(host: bytes) -> None:
    scope = asked("1.1")
    scope["headers"] = [(b"host", host)]
    problem = stranger(scope)
    assert problem is not None
    assert problem.status == 403


async def test_two_hosts_are_refused() -> None:
    """A proxy may have looked at the other one."""
    problem = stranger(asked("1.1", (b"host", b"127.0.0.1")))
    assert problem is not None
    assert problem.status == 400


def test_refused_names_of_hosts_are_not_kept() -> None:
    """Each may be megabytes long."""
    before = _is_local_authority.cache_info().currsize, _is_loopback.cache_info().currsize
    for number in range(12):
        assert not is_local_authority(b"%d" % number * 300)
        assert not is_loopback(str(number) * 300)
    assert (_is_local_authority.cache_info().currsize, _is_loopback.cache_info().currsize) == before


def test_large_headers_are_judged_and_not_kept() -> None:
    """What strangers send must not fill the memory."""
    before = _remembered.cache_info().currsize
    for number in range(12):
        large = (b"x-%d" % number * 600, b"")
        assert stranger(asked("1.1", large)) is None
        assert stranger(asked("1.1", large, (b"via", b""))) is not None
    assert _remembered.cache_info().currsize == before


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
async def test_without_keys_pages_of_other_sites_load_nothing(headers: dict[str, str], status: int) -> None:
    """Not even a picture, by which they could tell that turntake runs here; a link may lead to the page."""
    turns = accepting()
    async with turns, calling(turns.asgi()) as client:
        for path in ("/", "/pages/icon.svg", "/v1/conversations"):
            assert (await client.get(path, headers=headers)).status_code == status


async def test_answers_are_kept_by_nobody_and_loaded_by_no_other_site() -> None:
    turns = accepting()
    async with turns, calling(turns.asgi()) as client:
        answers = [
            await client.get("/v1/conversations"),
            await client.get("/v1/turns/x"),
            await client.head("/v1/events"),
        ]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert answers[0].headers["cross-origin-resource-policy"] == "same-origin"
