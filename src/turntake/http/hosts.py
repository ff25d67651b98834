"""Names and addresses of hosts: which of them mean this machine, and how to reach a server that listens on one."""

import socket
from functools import lru_cache
from ipaddress import ip_address


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can use the name or address."""
    name = host.lower().strip("[]").rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=64)
def is_local_authority(authority: bytes) -> bool:
    """Whether a Host header names this machine."""
    host = authority.decode("latin-1").lower()
    name = host.partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def family_of(host: str) -> socket.AddressFamily:
    """The kind of socket that can listen on `host`."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def reachable(host: str) -> str:
    """An address to call for a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
