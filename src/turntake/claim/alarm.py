"""Sleeps until the next deadline, or until woken for an earlier one.

How this works: the worker sleeps on one `asyncio.Event`, and one timer sets it at `_wake_at`. A ring for an earlier
deadline moves the timer forward. A ring that comes while nobody sleeps (the worker is busy claiming) is kept in
`_wake_at` for the next sleep, and a wake is kept in the event, so that neither is lost between looking and sleeping.
After a sleep both start anew, since the worker then looks at the store itself.
"""

import asyncio

from turntake.buffer.store import HORIZON_MS
from turntake.clock import NEVER, Clock, Timer


class Alarm:
    """What a worker sleeps on. If every ring were lost, it would still look again after the horizon."""

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

    async def sleep(self, until: int | None) -> int:
        """Returns at `until`, at an earlier ring, or at the horizon; and says how many milliseconds too late."""
        self._wake_at = min(self._wake_at, self._clock.now() + self._horizon_ms, until or NEVER)
        self._set_timer()
        try:
            await self._woken.wait()
            return max(0, self._clock.now() - self._wake_at)
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
