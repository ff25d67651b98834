"""Places for answers on their way out, so many for each account: a platform that hangs holds up its own answers only.

An attempt that only has to send gives its worker slot back and takes a place here.
"""

from asyncio import Semaphore
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from turntake.claim.breakers import Destination
from turntake.clock import Clock

# At 200 ms a call that is 250 a second and account, more than the platforms allow.
PLACES = 50
# A burst of answers is out by then; longer, the platform is slow, and they had better wait in the store.
LONGEST_WAIT_MS = 2_000


class SendingPlaces:
    """Who sends through which account."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[Destination, Semaphore] = {}
        self._users: dict[Destination, int] = {}

    @asynccontextmanager
    async def taken(self, account: Destination) -> AsyncIterator[bool]:
        """Holds a place, and says so; False if none gets free for too long."""
        places = self._places.setdefault(account, Semaphore(PLACES))
        self._users[account] = self._users.get(account, 0) + 1
        try:
            has_place = await self._acquire(places)
            try:
                yield has_place
            finally:
                if has_place:
                    places.release()
        finally:
            self._users[account] -= 1
            if not self._users[account]:
                del self._users[account], self._places[account]

    async def _acquire(self, places: Semaphore) -> bool:
        with suppress(TimeoutError):
            if not places.locked():
                return await places.acquire()
            async with self._clock.limit(LONGEST_WAIT_MS):
                return await places.acquire()
        return False
