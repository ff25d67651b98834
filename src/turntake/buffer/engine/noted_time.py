"""The latest time that any process saw, kept with the rows: a clock that was set back goes on from there."""

import logging
from abc import ABC, abstractmethod

from turntake.buffer.open import CLOCK_WRONG_MS
from turntake.clock import Clock

log = logging.getLogger("turntake")

# By so much at most a clock that was set back goes on behind; a write per second costs nothing beside the others.
NOTED_EVERY_MS = 1_000


class NotedTime(ABC):
    """A backend notes the time along with what it writes, every `NOTED_EVERY_MS` at least."""

    @abstractmethod
    async def read(self) -> tuple[int, int]:
        """What the clock that counts says, and the latest time that any process noted; 0 if none did."""

    @abstractmethod
    async def set(self, at: int) -> None:
        """Takes `at` for the latest time that any process noted, also if that was later."""


def go_on_from(noted_at: int, clock: Clock) -> None:
    """What a backend does when it opens."""
    behind_ms = noted_at - clock.now()
    if behind_ms > CLOCK_WRONG_MS:
        log.warning("The clock is behind the store's; going on from there", extra={"behind_ms": behind_ms})
    clock.resume(noted_at)
