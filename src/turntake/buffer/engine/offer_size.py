"""How large an offer may be in bytes, for every backend.

A claim is bounded in number by the worker's free slots, but a hundred conversations may hold a hundred megabytes. An
offer that takes longer than the time limit would never arrive: the next one finds its conversations reserved or locked,
and says that nothing is due.
"""

import logging

log = logging.getLogger("turntake")

# A fraction of a second on a slow line, and milliseconds of the server; most claims need far less.
OFFER_BYTES = 1_000_000
# One conversation is always offered, however large; below this, halving would save nothing.
LEAST_BYTES = 16_000


class OfferSize:
    """The most bytes of rows and messages that one offer carries: half as many after each that took too long."""

    def __init__(self, most: int = OFFER_BYTES) -> None:
        self._most = most
        self.bytes = most

    def took(self, duration_ms: float, limit_ms: int) -> None:
        """An offer arrived after so long, or did not arrive at all within the limit."""
        if duration_ms >= limit_ms:
            self.bytes = max(LEAST_BYTES, self.bytes // 2)
            facts = {"action": "claim", "duration_ms": round(duration_ms), "bytes": self.bytes}
            log.warning("An offer of due conversations took too long; asking for less at a time", extra=facts)
        elif duration_ms < limit_ms / 4:
            self.bytes = min(self._most, 2 * self.bytes)
