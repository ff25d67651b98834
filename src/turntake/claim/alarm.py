"""Sleeps until the next deadline, or until woken for an earlier one."""

import asyncio

from turntake.buffer.store import HORIZON_MS
from turntake.clock import Clock, Timer

NEVER = 2**62


class Alarm:
    """A ring is a hint. If every one were lost, a sleeper would still look again after the horizon."""

    def __init__(self, clock: Clock, horizon_ms: int = HORIZON_MS) -> None:
        self._clock = clock
        self._horizon_ms = horizon_ms
        self._woken = asyncio.Event()
        self._wake_at = NEVER
        self._timer: Timer | None = None

    def ring(self, at: int) -> None:
        """Somebody is due at `at`: whoever sleeps, or is about to, wakes by then."""
        if at < self._wake_at:
            self._wake_at = at
            if self._timer is not None:
                self._set_timer()

    def wake(self) -> None:
        """Wakes the sleeper now, or keeps the next one from falling asleep."""
        self._woken.set()

    async def sleep(self, until: int | None) -> None:
        """Returns at `until`, at an earlier ring, or at the horizon."""
        self._wake_at = min(self._wake_at, self._clock.now() + self._horizon_ms, until or NEVER)
        self._set_timer()
        try:
            await self._woken.wait()
        finally:
            self._woken.clear()
            self._wake_at = NEVER
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(self._wake_at, self._woken.set)
