"""Which user of this machine made a connection: a proxy has a user of its own."""

import os
import socket
import sys
from typing import Any

import pytest

from harness.servers import calling
from turntake import Rules, TurnTake
from turntake.http import peer_user
from turntake.http.access import stranger
from turntake.http.peer_user import CONNECTION, is_another_users, user_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_tells_whose_a_connection_is(family: socket.AddressFamily, host: str) -> None:
    with (
        socket.create_server((host, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]),
        server.accept()[0] as accepted,
    ):
        client, ours = accepted.getpeername()[:2], accepted.getsockname()[:2]
        assert user_of(client, ours) in (os.geteuid(), None)  # None where a sandbox forbids to ask
        assert not is_another_users(client, ours)


def test_what_nobody_knows_is_not_held_against_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_of(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    assert user_of(("a Unix socket", 0), ("127.0.0.1", 2)) is None
    assert not is_another_users(None, ("127.0.0.1", 2))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not is_another_users(("127.0.0.1", 1), ("127.0.0.1", 2))


def test_another_user_is_not_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_user, "user_of", lambda client, server: os.geteuid() + 1)
    assert is_another_users(("127.0.0.1", 1), ("127.0.0.1", 2))


class Proxys:
    is_another_users = True


async def test_a_program_of_another_user_needs_a_key() -> None:
    """nginx that speaks HTTP/1.1 says nothing of the caller, but runs as a user of its own. It may ask for health."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/v1/conversations",
        "http_version": "1.1",
        "client": ("127.0.0.1", 5),
        "headers": [(b"host", b"127.0.0.1:8080")],
    }
    assert stranger(scope) is None
    problem = stranger(scope | {CONNECTION: Proxys()})
    assert problem is not None
    assert problem.status == 403
    assert stranger(scope | {CONNECTION: Proxys(), "path": "/healthz"}, ("/healthz",)) is None


async def test_the_made_key_serves_every_user() -> None:
    turns = TurnTake("memory://", rules=Rules(silence_ms=20_000), role="accept")
    app = turns.asgi(made_key="the key that was made")

    async def proxied(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, CONNECTION: Proxys()}, receive, send)

    async with turns, calling(proxied) as client:
        assert (await client.get("/v1/conversations")).status_code == 403
        assert (await client.get("/healthz")).status_code == 200
        key = {"x-api-key": "the key that was made"}
        assert (await client.get("/v1/conversations", headers=key)).status_code == 200
