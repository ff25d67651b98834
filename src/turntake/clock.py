"""The only place that reads the time or sets a timer.

How `SystemClock.follow` works: many machines share a store, and deadlines are given by the store's clock. Each answer
of the store brings its time, and each process keeps its own clock beside it. An answer is always a little old when it
is read, and nobody knows how old, so:

- If we are behind what the store said, we are behind for certain: we step forward at once.
- If we are ahead, the answer may only have been slow. So the smallest lead of a whole minute of answers is taken as
  drift: at least one of them was quick. It is taken back a little at a time, since meanwhile our time stands still.
- If we are ahead by seconds, the store's clock was set back. The deadlines in the store were given by the time before,
  and would be late by as much; so we go on from there, a tenth slower than real time, until the clock has caught up.

The first answer is taken as it is, since no deadline was given by our clock yet. A store on this machine has no clock
of its own: then the machine's is the one that we are ahead of. What others judge by their own clocks, such as the time
in a signature, goes by `wall`, which is the machine's clock as it is now.

A time that was wrong once must not cost what is kept for days. `doubtful_ms` says how much of the time may be such an
error: what we know to be ahead, and what passed without anybody seeing it pass.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

DAY_MS = 24 * 3_600_000
NEVER = 2**62
"""Later than any deadline, and still an integer that every clock and every database takes."""
# No answer takes so long and still arrives: a lead of more than this means that the store's clock was set back.
SET_BACK_MS = 5_000
# Long enough for one quick answer among slow ones, short enough that a clock drifts a few milliseconds at most.
DRIFT_WATCHED_MS = 60_000
# What is taken back at once: while our time stands still, deadlines are late by as much, and nobody notices this.
STAND_STILL_MS = 100
# While we are ahead: a second of silence takes 1.1 s, which nobody notices, and an hour is caught up within ten.
SLOWER = 0.1
# How often to look whether we are ahead: a tenth of this is a millisecond, which is the least that the time can differ.
LOOK_S = 0.01
# Clocks less apart than this drifted and meet again; more means that the server's was set back.
APART_MS = 250
# Counts on while the machine sleeps, where there is such a clock, and is never set.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


async def real_pause(duration_ms: int) -> None:
    """So long by the wall, whatever clock a store goes by: for what a server measures by itself."""
    await asyncio.sleep(duration_ms / 1000)


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

    def wall(self) -> int:
        """What the machine's clock says now, right or wrong: for what others judge by theirs, such as signatures."""
        return self.now()

    def resume(self, seen_at: int) -> None:
        """The store was last in use at `seen_at`; 0 if it never was. The time goes on from there, or is later."""
        self.not_before(seen_at)

    @property
    def ahead_ms(self) -> int:
        """How far the time is known to be ahead of the clocks it should agree with."""
        return 0

    @property
    def doubtful_ms(self) -> int:
        """How far it may be ahead: what passed while nobody watched was a pause, or somebody set a clock wrongly."""
        return self.ahead_ms

    is_followed = False
    """Whether it goes by the store's clock, once there is one; a clock that tests move by hand does not."""

    def follow(self, at: int, seen_at: int = 0) -> None:
        """The store's clock said `at` a moment ago, and the latest time that any process noted there is `seen_at`."""
        return

    @abstractmethod
    def call_at(self, at: int, action: Callable[[], None]) -> Timer:
        """Runs `action` on the event loop once `at` has come."""

    async def sleep_until(self, at: int) -> None:
        """Returns once `at` has come."""
        has_come = asyncio.Event()
        timer = self.call_at(at, has_come.set)
        try:
            await has_come.wait()
        finally:
            timer.cancel()

    async def sleep(self, duration_ms: int) -> None:
        await self.sleep_until(self.now() + duration_ms)

    def limit(self, duration_ms: int) -> "TimeLimit":
        """`async with` it: what runs inside is cancelled after so long, which raises TimeoutError."""
        return TimeLimit(self, self.now() + duration_ms)


class TimeLimit:
    """When something must be done."""

    __slots__ = ("_at", "_clock", "_timeout", "_timer")

    def __init__(self, clock: Clock, at: int) -> None:
        self._at = at
        self._clock = clock
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._timer = self._clock.call_at(self._at, self._expire)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _expire(self) -> None:
        # A time that has passed, on any loop: it expires as soon as the loop comes round.
        self._timeout.reschedule(0.0)


class SystemClock(Clock):
    """Wall time at start plus steady time since: a clock set back or forward stalls nothing and expires no lease.

    With a store that has a clock of its own, it keeps to that one: forward at once, back only as much as it drifted.
    While it is ahead of the clock that it should agree with, it runs a tenth slower.
    """

    is_followed = True

    def __init__(self) -> None:
        self._steady = time.clock_gettime(_STEADY)
        self._offset = time.time() - self._steady
        self._latest = 0
        self._server_offset: float | None = None
        self._least_ahead = SET_BACK_MS
        self._watched_since = 0
        self._unseen, self._unseen_since = 0.0, self._steady

    def now(self) -> int:
        steady = time.clock_gettime(_STEADY)
        if steady - self._steady >= LOOK_S:
            self._fall_back(steady)
        now = int((self._offset + steady) * 1000)
        if now > self._latest:
            self._latest = now
        return self._latest

    def wall(self) -> int:
        return int(time.time() * 1000)

    def not_before(self, at: int) -> None:
        self._offset += max(0, at - self.now()) / 1000

    def resume(self, seen_at: int) -> None:
        if seen_at:
            self._note_unseen(self.now() - seen_at)
        self.not_before(seen_at)

    @property
    def ahead_ms(self) -> int:
        now = max(self._latest, self._read())
        servers = now if self._server_offset is None else int((self._server_offset + self._steady) * 1000)
        return max(0, now - min(servers, self.wall()))

    @property
    def doubtful_ms(self) -> int:
        return max(self.ahead_ms, int(self._still_unseen() * 1000))

    def follow(self, at: int, seen_at: int = 0) -> None:
        """Keeps to the store's clock; the head of this file says how."""
        ahead = self._read() - at
        is_first, self._server_offset = self._server_offset is None, at / 1000 - self._steady
        if is_first:
            self._latest = 0
            self._correct(ahead, at)
        elif ahead < 0:
            self._note_unseen(-ahead)
            self._correct(ahead, at)
        elif ahead < SET_BACK_MS:
            self._least_ahead = min(self._least_ahead, ahead)
            if at - self._watched_since >= DRIFT_WATCHED_MS:
                self._correct(min(self._least_ahead, STAND_STILL_MS), at)
        if seen_at > at + APART_MS:
            self.not_before(seen_at)

    def _correct(self, ahead: int, at: int) -> None:
        """Takes back what we are ahead, or catches up if that is negative; a new minute of watching begins."""
        self._offset -= ahead / 1000
        self._least_ahead, self._watched_since = SET_BACK_MS, at

    def _read(self) -> int:
        self._fall_back(time.clock_gettime(_STEADY))
        return int((self._offset + self._steady) * 1000)

    def _fall_back(self, steady: float) -> None:
        """If we are ahead, takes back a tenth of what passed since the last look, which is now, at `steady`."""
        passed, self._steady = steady - self._steady, steady
        if (lead := self._lead()) > 0:
            self._offset -= min(lead, passed * SLOWER)

    def _lead(self) -> float:
        """By how many seconds we are to fall back. What a store's clock may be ahead by drift is seen to elsewhere."""
        if self._server_offset is None:
            return self._offset + self._steady - time.time()
        return self._offset - self._server_offset - SET_BACK_MS / 1000

    def _note_unseen(self, duration_ms: int) -> None:
        if duration_ms > SET_BACK_MS:
            self._unseen, self._unseen_since = self._still_unseen() + duration_ms / 1000, self._steady

    def _still_unseen(self) -> float:
        """What passed unseen, less what we saw pass since: a pause of a week is made up for in another week."""
        return max(0.0, self._unseen - (self._steady - self._unseen_since))

    def pause(self, duration_ms: int) -> None:
        """Blocks the thread for so long: for commands, which have no event loop."""
        time.sleep(duration_ms / 1000)

    def call_at(self, at: int, action: Callable[[], None]) -> Timer:
        self._read()
        left = at / 1000 - self._offset - self._steady
        if (lead := self._lead()) > 0:
            left = min(left / (1 - SLOWER), left + lead)
        return asyncio.get_running_loop().call_later(max(0.0, left), action)


def pause_thread(duration_ms: int) -> None:
    """For a thread that waits for another process, which tells nobody when it is done. Never on the event loop."""
    time.sleep(duration_ms / 1000)
