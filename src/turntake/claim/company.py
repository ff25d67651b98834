"""Who may run beside whom in one process.

How this works: when a process dies, the leases of all turns that it held end together, and one of those turns may be
the cause. `company_of` in `rules/retry.py` says beside whom each of them may be tried next. A turn that may have nobody
beside it is claimed like any other. From then on nothing more is claimed here; the turn waits until what runs has
ended, that it is alone is written into its row, and only then is it handed over. If the process dies once more, the row
says that this turn was the cause and no other.

Suspects that were claimed together follow each other, each alone, before anybody else may join: so the wait for what
runs is paid once. One that waits for its turn there runs nothing, and is not blamed if the process dies.

A turn for which there is no room now is handed back for a moment, so that it hides nobody else who is due. And after
suspects had the process to themselves, the others have it for as long, so that many of them keep nobody waiting.
Suspects that have to wait stand in line: each is handed back until the one before it should be done, going by how long
the latest took. Whoever comes back too early goes to the end of the line.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from turntake.claim.attempt import Attempt
from turntake.clock import Clock
from turntake.rules.retry import FEW

# About the time that an answer takes: by then there may be room.
NO_ROOM_MS = 1_000
# No suspect follows another sooner: thirty of them then take a few seconds, and a store hardly notices their claims.
LEAST_BETWEEN_MS = 100
# The last in line comes at most this much later than the first: each may be done much earlier than the latest was.
LONGEST_LINE_MS = 2_000
# For so long suspects follow each other: quick answers are all given by then, and the others have hardly waited.
TOGETHER_MS = 2_000
# However long they had the process to themselves, the next need not wait for longer than this.
LONGEST_BETWEEN_MS = 30_000


class Company:
    """The attempts that run in this process, and which others may join them."""

    def __init__(self, running: Mapping[Attempt, "asyncio.Task[None]"], clock: Clock, longest_ms: int) -> None:
        """No attempt runs for much longer than `longest_ms`: that is how long one waits to be alone."""
        self._running = running
        self._clock = clock
        self._longest_ms = longest_ms
        self._suspects = 0  # how many wait to be alone here, or are
        self._one_at_a_time = asyncio.Lock()
        self._alone_since = 0
        self._together_until = 0
        self._alone_ms = 0
        self._next_alone_at = 0
        self._line_at = 0

    @property
    def is_closed(self) -> bool:
        """Whether a turn waits to be alone, or is: then nothing more may be claimed."""
        return self._suspects > 0

    def pause_ms(self, attempt: Attempt) -> int:
        """0 if it may join; else for how long to hand its turn back."""
        match attempt.company:
            case "few":
                return 0 if sum(other.company == "few" for other in self._running) < FEW else NO_ROOM_MS
            case "nobody":
                now = self._clock.now()
                has_room = self._suspects < FEW if self.is_closed else now >= self._next_alone_at
                return 0 if has_room else self._stand_in_line(now)
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
        if not self.is_closed:
            self._alone_since, self._together_until = self._clock.now(), 0
        self._suspects += 1

    def open(self) -> None:
        """It is over."""
        self._suspects -= 1
        if not self.is_closed:
            now = self._clock.now()
            self._alone_ms = now - self._alone_since
            self._next_alone_at = now + min(self._alone_ms, LONGEST_BETWEEN_MS)

    @asynccontextmanager
    async def alone(self, attempt: Attempt) -> AsyncIterator[int]:
        """Begins once nothing else runs, which is noted with the turn; or after the longest time that others may take.

        Gives 0; or, if those before it took so long that the others come first, for how long to hand its turn back.
        Raises ClaimLost and StoreUnavailable.
        """
        async with self._one_at_a_time:
            now = self._clock.now()
            if self._together_until and now >= self._together_until:
                yield self._stand_in_line(now)
                return
            await self._others_have_ended()
            self._together_until = self._together_until or self._clock.now() + TOGETHER_MS
            if not self._others():
                await attempt.held.extend(attempt.held.lease_ms, "alone")
            yield 0

    async def _others_have_ended(self) -> None:
        if others := self._others():
            with suppress(TimeoutError):
                async with self._clock.limit(self._longest_ms):
                    await asyncio.wait(others)

    def _others(self) -> "list[asyncio.Task[None]]":
        """Those that run. Suspects do so one at a time, so they are not among them."""
        return [task for other, task in self._running.items() if other.company != "nobody"]
