"""Which addresses are called: those that the operator named, and besides only public ones."""

import asyncio
import socket
from typing import Any

import pytest

from harness.agent_server import agent_server
from turntake.deliver.address_guard import AddressGuard, is_public
from turntake.deliver.http_call import HttpCaller
from turntake.errors import CallFailed, GiveUp
from turntake.platforms.replies import ApiCall


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"],
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.9.1",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.5.5",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "fec0::1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:db8::1",
    ],
)
def test_private_addresses_in_any_disguise(address: str) -> None:
    """Also as IPv6 that a network translates back, and the one at which clouds hand out credentials."""
    assert not is_public(address)


async def called(url: str, guard: AddressGuard) -> int:
    async with HttpCaller("The platform", 5_000, guard=guard) as caller:
        return (await caller.call(ApiCall(url, b"{}"))).status


async def test_an_address_that_nobody_named_is_called_only_if_it_is_public() -> None:
    async with agent_server() as server:
        elsewhere = AddressGuard(["https://api.example", "not an address", ""])
        for url in (server.url, server.url.replace("127.0.0.1", "localhost")):
            with pytest.raises(GiveUp, match=r"private network.*replies\.private_hosts"):
                await called(url, elsewhere)
        assert not server.requests
        assert await called(server.url, AddressGuard([server.url + "/other/path"])) == 204
        assert await called(server.url, AddressGuard([], ["127.0.0.1"])) == 204
        another_port = server.url.rpartition(":")[0] + ":1"
        with pytest.raises(GiveUp):
            await called(server.url, AddressGuard([another_port]))


async def test_a_name_is_looked_up_once_and_the_address_that_was_checked_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that is public when it is checked and private when it is called would lead anywhere."""
    asked: list[str] = []
    connected: list[str] = []

    async def look_up(host: str, port: int, **how: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        address = "93.184.216.34" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    guard = AddressGuard([])

    async def connect(host: str, port: int, **options: Any) -> Any:
        connected.append(host)
        raise OSError("no network in tests")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    monkeypatch.setattr(guard._network, "connect_tcp", connect)
    with pytest.raises(OSError, match="no network"):
        await guard.connect_tcp("rebinding.example", 443)
    assert (asked, connected) == (["rebinding.example"], ["93.184.216.34"])
    with pytest.raises(GiveUp):
        await guard.connect_tcp("rebinding.example", 443)


async def test_one_private_address_among_public_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(host: str, port: int, **how: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("93.184.216.34", "10.0.0.1")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    with pytest.raises(GiveUp):
        await AddressGuard([]).connect_tcp("mixed.example", 443)


async def test_a_name_without_an_address_may_have_one_later() -> None:
    with pytest.raises(CallFailed) as raised:
        await called("http://nobody.invalid/", AddressGuard([]))
    assert not raised.value.is_handed_over
