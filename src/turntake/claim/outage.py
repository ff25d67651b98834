"""What the log says while nothing can be claimed: at once, once a minute from then on, and when it is over."""

import logging
from typing import Any

from turntake.clock import Clock
from turntake.errors import StoreUnavailable

log = logging.getLogger("turntake")

# Whoever reads the log while it lasts sees it soon; a night of it is no more lines than minutes.
EVERY_MS = 60_000


class Outage:
    """A worker says here how each of its looks for work went."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: int | None = None
        self._said_at = 0

    def failed(self, error: Exception) -> None:
        now = self._clock.now()
        if self._since is not None and now - self._said_at < EVERY_MS:
            return
        self._since, self._said_at = now if self._since is None else self._since, now
        facts: dict[str, Any] = {"action": "claim", "error": type(error).__name__, "for_ms": now - self._since}
        if isinstance(error, StoreUnavailable):  # a store's own words; those of anything else may be a person's
            facts["reason"] = str(error)
        log.error("Nothing could be claimed", extra=facts)

    def succeeded(self) -> None:
        if self._since is not None:
            facts = {"action": "claim", "for_ms": self._clock.now() - self._since}
            log.warning("Turns can be claimed again", extra=facts)
            self._since = None
