"""Which addresses we may call: those that the operator named, and besides only public ones.

A URL in a payload must not make us call this machine or a neighbour in its network, which trust us and not the sender.

How this works: the guard makes the connections of an HTTP client. For a host that nobody vouched for it looks up the
addresses itself, refuses unless all of them are public, and connects to one of those it checked. A name that points to
another address a moment later, as an attacker's may, is not looked up a second time. The certificate is still checked
against the name.
"""

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpcore2
import httpx2

from turntake.errors import GiveUp

DEFAULT_PORTS = {"http": 80, "https": 443}
NAT64 = IPv6Network("64:ff9b::/96")
SETTING = "replies.private_hosts"


class AddressGuard(httpcore2.AsyncNetworkBackend):
    """Connects to the origins of `named` URLs and to `private_hosts`, whatever their address; else to public ones."""

    def __init__(self, named: Iterable[str], private_hosts: Iterable[str] = ()) -> None:
        self._origins = {origin for url in named if (origin := _origin(url))}
        self._hosts = {host.lower() for host in private_hosts}
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(self, host: str, port: int, *arguments: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        """Raises GiveUp for an address that must not be called: it will be no other at the next try."""
        if (host.lower(), port) in self._origins or host.lower() in self._hosts:
            return await self._network.connect_tcp(host, port, *arguments, **options)
        *others, last = await _public_addresses(host, port)
        for address in others:
            try:
                return await self._network.connect_tcp(address, port, *arguments, **options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._network.connect_tcp(last, port, *arguments, **options)

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


def guarded_transport(guard: AddressGuard, limits: httpx2.Limits) -> httpx2.AsyncHTTPTransport:
    """A transport whose connections are made by the guard."""
    transport = httpx2.AsyncHTTPTransport(limits=limits, trust_env=False)
    # The client has no parameter for it. If a later release keeps it elsewhere, the tests of the guard fail.
    transport._pool._network_backend = guard
    return transport


def is_public(address: str) -> bool:
    """Whether an address belongs to the internet, and not to this machine or a private network, in any disguise."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        inner = _embedded(ip)
        if inner is not None:
            return is_public(str(inner))
        if ip.is_site_local:  # private networks of before 2004, which Python takes for global
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _embedded(ip: IPv6Address) -> IPv4Address | None:
    """The IPv4 address to which a translating network would take this one, if it is such an address."""
    if ip in NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


async def _public_addresses(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpcore2.ConnectError(f"{host} has no address") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses or not all(map(is_public, addresses)):
        raise GiveUp(
            f"{host} is in a private network, and no setting names it: if it is to be called, add it to {SETTING}."
        )
    return addresses


def _origin(url: str) -> tuple[str, int] | None:
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        return None
    port = parsed.port or DEFAULT_PORTS.get(parsed.scheme)
    return (parsed.raw_host.decode("ascii").lower(), port) if parsed.host and port else None
