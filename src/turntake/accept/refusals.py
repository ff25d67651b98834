"""Refused callers: each address may be refused a number of times, then is told to wait. The log counts them.

Whoever has the right key or signature is never told to wait: behind a proxy all callers share one address, and one of
them must not be able to lock the others out. So this does not make a short key safe; its length does.
"""

import logging
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from turntake.clock import Clock
from turntake.counted_log import CountedLog
from turntake.errors import Problem
from turntake.rules.rates import Bucket, Buckets

log = logging.getLogger("turntake")

# Somebody who sets up a client or a webhook tries a few dozen times; a program that guesses tries thousands.
TRIES_PER_MINUTE = 60
ADDRESSES = 10_000  # about a megabyte; the one that was refused longest ago is forgotten first


class Refusals:
    """What a refused caller is told, and what the log says of it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets = Buckets(ADDRESSES)
        self._log = CountedLog(log, clock)

    def answer(
        self, problem: Problem, client: tuple[str, int] | None, sentence: str, facts: Mapping[str, Any]
    ) -> Problem:
        """The problem itself, or a 429 for an address that was refused too often."""
        address = client[0] if client else ""
        self._log.tell(sentence, {"action": "refuse", "address": address, **facts})
        tries = Bucket("address", _network_of(address), "refusals", TRIES_PER_MINUTE)
        refusal = self._buckets.take({tries: 1}, self._clock.now())
        if refusal is None:
            return problem
        detail = "Too many requests of this address were refused; wait, and send a right key or signature."
        return Problem(429, detail, headers={"Retry-After": str(-(-refusal.after_ms // 1_000)), "Connection": "close"})


def _network_of(address: str) -> str:
    """The address, or of IPv6 the network of 64 bits: whoever has one address there has all of them."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return address if parsed.version == 4 or parsed.ipv4_mapped else parsed.exploded[:19]
