"""Which user of this machine made a connection to us over loopback. Linux tells; elsewhere nobody knows.

A proxy that runs here passes on strangers as if they were programs of this machine. But it runs as a user of its own.

How this works: the kernel answers by netlink (`man 7 sock_diag`) to whom the other end of a connection belongs, in some
tens of microseconds. /proc/net/tcp says the same, but is a list of all connections.
"""

import os
import socket
import struct
import sys
from ipaddress import ip_address

Address = tuple[str, int]
CONNECTION = "turntake.connection"
"""Where a request's scope has the connection, which knows `is_another_users`; other servers than ours have none."""

SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLMSG_ERROR = 20, 1, 2
NETLINK_SOCK_DIAG = 4
ALL_STATES = NO_COOKIE = 0xFFFFFFFF
TIME_WAIT = 6
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, sender
_ASKED = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_PORTS_AND_ADDRESSES = struct.Struct("!HH16s16s")
_INTERFACE_AND_COOKIE = struct.Struct("=III")
_STATE_AT = _HEADER.size + 1
_USER_AT = _HEADER.size + 4 + _PORTS_AND_ADDRESSES.size + _INTERFACE_AND_COOKIE.size + 12


def is_another_users(client: Address | None, server: Address | None) -> bool:
    """Whether a program of another user than ours opened the connection; False if nobody knows."""
    if client is None or server is None or sys.platform != "linux":
        return False
    user = user_of(client, server)
    return user is not None and user != os.geteuid()


def user_of(client: Address, server: Address) -> int | None:
    """The user whose program opened the connection from `client` to `server`, if it did so on this machine."""
    try:
        asked = _question(client, server)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG) as kernel:
            kernel.setblocking(False)  # it answers before `sendto` returns
            kernel.sendto(asked, (0, 0))
            answer = kernel.recv(4_096)
    except (OSError, ValueError):
        return None
    _, kind, *_ = _HEADER.unpack_from(answer)
    # Of a connection that its program closed, the kernel remembers no user.
    if kind == NLMSG_ERROR or answer[_STATE_AT] == TIME_WAIT:
        return None
    user: int = struct.unpack_from("=I", answer, _USER_AT)[0]
    return user


def _question(client: Address, server: Address) -> bytes:
    (source, family), (target, _) = _packed(client[0]), _packed(server[0])
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, ALL_STATES)
    asked += _PORTS_AND_ADDRESSES.pack(client[1], server[1], source, target)
    asked += _INTERFACE_AND_COOKIE.pack(0, NO_COOKIE, NO_COOKIE)
    return _HEADER.pack(_HEADER.size + len(asked), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + asked


def _packed(host: str) -> tuple[bytes, int]:
    address = ip_address(host)
    address = getattr(address, "ipv4_mapped", None) or address
    return address.packed, socket.AF_INET if address.version == 4 else socket.AF_INET6
