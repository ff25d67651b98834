"""How long handlers may work.

How this works: all handlers of a process get equally long, so whoever began first must end first. One timer is set, for
the first to end. When it rings, those whose time is over are cancelled, and it is set for the next. So a handler that
ends in time, as nearly all do, has no timer of its own.
"""

import asyncio
from types import TracebackType
from typing import Self

from turntake.clock import NEVER, Clock, Timer
from turntake.errors import TimedOut


class HandlerLimit:
    """When a handler must have ended. `with` it: a handler that is still inside then is cancelled, which raises
    TimedOut. It can be moved meanwhile."""

    __slots__ = ("_has_expired", "_limits", "_task", "at")

    def __init__(self, limits: "HandlerLimits", at: int) -> None:
        self.at = at
        self._limits = limits
        self._task = asyncio.current_task(limits.loop)
        self._has_expired = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limits.working.remove(self)  # the timer stays: when it rings, it looks who is left
        if not self._has_expired or self._task is None:
            return
        is_cancelled_by_others = self._task.uncancel() > 0
        # The handler may also make a TimeoutError of the cancellation.
        if isinstance(error, TimeoutError) or (
            isinstance(error, asyncio.CancelledError) and not is_cancelled_by_others
        ):
            raise TimedOut(
                f"The handler was cancelled after {self._limits.duration_ms} ms. Raise worker.handler_ms, or call "
                "`turn.extend` from a handler that needs longer; give the calls that it waits for a time limit of "
                "their own."
            ) from None

    def expire(self) -> None:
        """Cancels the handler, once."""
        self.at = NEVER
        self._has_expired = True
        if self._task is not None:
            self._task.cancel()


class HandlerLimits:
    """The limits of all handlers that work in this process."""

    def __init__(self, clock: Clock, duration_ms: int) -> None:
        self.duration_ms = duration_ms
        self.loop = asyncio.get_running_loop()  # asked once: it costs a system call
        self._clock = clock
        self.working: set[HandlerLimit] = set()
        self._timer: Timer | None = None

    def begin(self) -> HandlerLimit:
        """The limit of a handler that begins now, in the task that calls this."""
        limit = HandlerLimit(self, self._clock.now() + self.duration_ms)
        self.working.add(limit)
        if self._timer is None:
            self._timer = self._clock.call_at(limit.at, self._expire_late)
        return limit

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire_late(self) -> None:
        now = self._clock.now()
        for limit in self.working:
            if limit.at <= now:
                limit.expire()
        next_at = min((limit.at for limit in self.working), default=NEVER)
        self._timer = None if next_at == NEVER else self._clock.call_at(next_at, self._expire_late)
