"""Notices what no single turn can tell: an event loop that stood still, and slots that stay taken."""

import logging
from collections.abc import Callable

from turntake.clock import Clock

log = logging.getLogger("turntake")

# A machine with far too much to do may wake us a second late; two, and something blocked the loop for all turns.
LATE_MS = 2_000
# Answers take seconds. If every slot is taken for half a minute, new turns wait for as long.
FULL_MS = 30_000
# Again and again while it lasts, and not so often that it fills the log.
FULL_AGAIN_MS = 300_000


class Watch:
    """Told by the worker whenever it wakes, which is once a second at least. `is_full` says if every slot is taken."""

    def __init__(self, clock: Clock, is_full: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_full = is_full
        self._full_since: int | None = None
        self._warn_at = 0

    @property
    def full_ms(self) -> int:
        """For how long every slot has been taken, if that is worth a word; else 0."""
        full_ms = 0 if self._full_since is None else self._clock.now() - self._full_since
        return full_ms if full_ms >= FULL_MS else 0

    def woke(self, late_ms: int) -> None:
        """The worker woke, so much later than it wanted to."""
        self._notice_late(late_ms)
        self._notice_full(self._clock.now())

    def _notice_late(self, late_ms: int) -> None:
        if late_ms >= LATE_MS:
            log.warning(
                "The event loop stood still: a handler blocks it, or the process was stopped. A handler that does not "
                "await belongs into a plain function, which gets a thread",
                extra={"action": "watch", "late_ms": late_ms},
            )

    def _notice_full(self, now: int) -> None:
        if not self._is_full():
            self._full_since = None
            return
        if self._full_since is None:
            self._full_since, self._warn_at = now, now + FULL_MS
        if now >= self._warn_at:
            self._warn_at = now + FULL_AGAIN_MS
            log.warning(
                "Every slot has been taken for a while, so new turns wait: the agent is slow or hangs, or "
                "worker.concurrency is too low",
                extra={"action": "watch", "full_ms": self.full_ms},
            )
