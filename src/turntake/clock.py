"""The only place that reads the time or sets a timer."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Timer(Protocol):
    """Something that will happen, unless cancelled."""

    def cancel(self) -> None: ...


class Clock(ABC):
    """Milliseconds since 1970 UTC, and timers on the same scale."""

    @abstractmethod
    def now(self) -> int:
        """The time. It never goes back while the process lives."""

    @abstractmethod
    def not_before(self, at: int) -> None:
        """The time is at least `at` from here on: somebody already saw it."""

    @abstractmethod
    def call_at(self, at: int, action: Callable[[], None]) -> Timer:
        """Runs `action` on the event loop once `at` has come."""

    async def sleep_until(self, at: int) -> None:
        """Returns once `at` has come."""
        come = asyncio.Event()
        timer = self.call_at(at, come.set)
        try:
            await come.wait()
        finally:
            timer.cancel()

    async def sleep(self, duration_ms: int) -> None:
        await self.sleep_until(self.now() + duration_ms)


class SystemClock(Clock):
    """Wall time at start plus steady time since: a clock set back or forward stalls nothing and expires no lease."""

    def __init__(self) -> None:
        self._offset = time.time() - time.clock_gettime(_STEADY)

    def now(self) -> int:
        return int((self._offset + time.clock_gettime(_STEADY)) * 1000)

    def not_before(self, at: int) -> None:
        self._offset += max(0, at - self.now()) / 1000

    def call_at(self, at: int, action: Callable[[], None]) -> Timer:
        delay = at / 1000 - self._offset - time.clock_gettime(_STEADY)
        return asyncio.get_running_loop().call_later(max(0.0, delay), action)
