"""A clock that moves only when told to."""

import asyncio
import heapq
import itertools
from collections.abc import Callable

from turntake.clock import Clock, Timer

START = 1_700_000_000_000
_ROUNDS = 50


class VirtualClock(Clock):
    """Starts at `START`. `advance` runs whatever falls due on the way, in order, each at its own time."""

    def __init__(self, now: int = START) -> None:
        self._now = now
        self._ahead_ms = 0
        self._timers: list[tuple[int, int, _VirtualTimer]] = []
        self._numbers = itertools.count()

    def now(self) -> int:
        return self._now

    def wall(self) -> int:
        """What a machine's clock would say that nobody pushed forward."""
        return self._now - self._ahead_ms

    @property
    def ahead_ms(self) -> int:
        return self._ahead_ms

    def not_before(self, at: int) -> None:
        self._ahead_ms += max(0, at - self._now)
        self._now = max(self._now, at)

    def call_at(self, at: int, action: Callable[[], None]) -> Timer:
        timer = _VirtualTimer(action)
        heapq.heappush(self._timers, (at, next(self._numbers), timer))
        return timer

    async def advance(self, duration_ms: int) -> None:
        """Lets `duration_ms` pass. Between two timers, everything that can run without waiting does run."""
        end = self._now + duration_ms
        await self._settle()
        while self._timers and self._timers[0][0] <= end:
            at, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, at)
            timer.fire()
            await self._settle()
        self._now = max(self._now, end)
        await self._settle()

    def stall(self, duration_ms: int) -> None:
        """Time passes and nothing runs, as when a process is stopped or its event loop blocked."""
        self._now += duration_ms

    async def _settle(self) -> None:
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)


class _VirtualTimer:
    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def fire(self) -> None:
        if self._action is not None:
            self._action()

    def cancel(self) -> None:
        self._action = None
