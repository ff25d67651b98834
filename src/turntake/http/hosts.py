"""Names and addresses of hosts: which of them mean this machine, and how to reach a server that listens on one."""

import re
import socket
from functools import lru_cache
from ipaddress import ip_address

LONGEST_HOST = 255  # of a DNS name, and with a port nobody needs more
# What browsers and clients write: a name or an address, and perhaps a port. Anything else is somebody's trick.
_AUTHORITY = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can use the name or address."""
    return len(host) <= LONGEST_HOST and _is_loopback(host)


def is_local_authority(authority: bytes) -> bool:
    """Whether a Host header names this machine."""
    return len(authority) <= LONGEST_HOST and _is_local_authority(authority)


@lru_cache(maxsize=64)
def _is_loopback(host: str) -> bool:
    name = host.lower().strip("[]").rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=64)
def _is_local_authority(authority: bytes) -> bool:
    match = _AUTHORITY.fullmatch(authority)
    return match is not None and is_loopback((match[1] or match[2]).decode("ascii"))


def family_of(host: str) -> socket.AddressFamily:
    """The kind of socket that can listen on `host`."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def reachable(host: str) -> str:
    """An address to call for a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
