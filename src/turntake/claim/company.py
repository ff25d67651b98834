"""Who may run beside whom in one process.

How this works: when a process dies, the leases of all turns that it held end together, and one of those turns may be
the cause. `company_of` in `rules/retry.py` says beside whom each of them may be tried next. A turn that may have nobody
beside it is claimed like any other. From then on nothing more is claimed here; the turn waits until what runs has
ended, that it is alone is written into its row, and only then is it handed over. If the process dies once more, the row
says that this turn was the cause and no other.

A turn for which there is no room now is handed back for a moment, so that it hides nobody else who is due. And after
a turn had the process to itself, the others have it for as long, so that many suspects in a row keep nobody waiting.
Suspects that have to wait stand in line: each is handed back until the one before it should be done, going by how long
the latest took. Whoever comes back too early goes to the end of the line.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from turntake.claim.attempt import Attempt
from turntake.clock import Clock
from turntake.rules.retry import FEW

# About the time that an answer takes: by then there may be room.
NO_ROOM_MS = 1_000
# No suspect follows another sooner: thirty of them then take a few seconds, and a store hardly notices their claims.
LEAST_BETWEEN_MS = 100
# The last in line comes at most this much later than the first: each may be done much earlier than the latest was.
LONGEST_LINE_MS = 2_000
# However long one had the process to itself, the next need not wait for longer than this.
LONGEST_BETWEEN_MS = 30_000


class Company:
    """The attempts that run in this process, and which others may join them."""

    def __init__(self, running: Mapping[Attempt, "asyncio.Task[None]"], clock: Clock, longest_ms: int) -> None:
        """No attempt runs for much longer than `longest_ms`: that is how long one waits to be alone."""
        self._running = running
        self._clock = clock
        self._longest_ms = longest_ms
        self.is_closed = False
        """Whether a turn waits to be alone, or is: then nobody else may join."""
        self._alone_since = 0
        self._alone_ms = 0
        self._next_alone_at = 0
        self._line_at = 0

    def pause_ms(self, attempt: Attempt) -> int:
        """0 if it may join; else for how long to hand its turn back."""
        match attempt.company:
            case "few":
                return 0 if sum(other.company == "few" for other in self._running) < FEW else NO_ROOM_MS
            case "nobody":
                now = self._clock.now()
                return self._stand_in_line(now) if self.is_closed or now < self._next_alone_at else 0
        return 0

    def _stand_in_line(self, now: int) -> int:
        """For how long a suspect is handed back that comes after all who wait."""
        first_at = self._next_alone_at
        if self.is_closed:
            first_at = max(now + LEAST_BETWEEN_MS, self._alone_since + 2 * self._alone_ms)
        at = min(max(self._line_at, first_at), first_at + LONGEST_LINE_MS)
        self._line_at = at + max(2 * self._alone_ms, LEAST_BETWEEN_MS)
        return at - now

    def close(self) -> None:
        """A turn begins that may have nobody beside it."""
        self.is_closed, self._alone_since = True, self._clock.now()

    def open(self) -> None:
        """It is over."""
        now = self._clock.now()
        self._alone_ms = now - self._alone_since
        self.is_closed, self._next_alone_at = False, now + min(self._alone_ms, LONGEST_BETWEEN_MS)

    async def wait_until_alone(self, attempt: Attempt) -> None:
        """Returns once nothing else runs, which is noted with the turn; or after the longest time that others may take.

        Raises ClaimLost and StoreUnavailable.
        """
        others = [task for other, task in self._running.items() if other is not attempt]
        with suppress(TimeoutError):
            if others:
                async with self._clock.limit(self._longest_ms):
                    await asyncio.wait(others)
        if len(self._running) == 1:
            await attempt.held.extend(attempt.held.lease_ms, "alone")
