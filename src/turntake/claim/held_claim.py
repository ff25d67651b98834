"""A claim as its worker holds it: what may be done with it in the store, patiently."""

from collections.abc import Awaitable, Callable
from typing import ParamSpec

from turntake.buffer.store import Store
from turntake.errors import ClaimLost, StoreUnavailable
from turntake.rules.conversation import Lease, Progress, Settlement
from turntake.rules.records import Claim

P = ParamSpec("P")

# Three seconds in all: a store that restarts or fails over nearby is back by then, and a lease lasts far longer.
PAUSES_MS = (100, 200, 400, 800, 1_600)


class HeldClaim:
    """Every method raises ClaimLost once the claim is somebody else's, and StoreUnavailable if the store stays away.

    A store that is away for a moment is asked again, which the claim's epoch makes safe.
    """

    __slots__ = ("_store", "claim", "clock", "is_settled", "lease_ms", "lease_until_at")

    def __init__(self, claim: Claim, store: Store, lease_ms: int) -> None:
        self.claim = claim
        self.clock = store.clock
        self.lease_ms = lease_ms
        self.is_settled = False
        self.lease_until_at = claim.turn.due_at
        """Until when the handler wanted to keep it, if that is longer than a lease."""
        self._store = store

    async def save(self, progress: Progress) -> None:
        """Keeps how far the answer is. From here on nobody interrupts it."""
        await self._insist(self._store.save, self.claim, progress, self.lease_ms)

    async def extend(self, duration_ms: int, lease: Lease | None = None) -> None:
        """Keeps the claim for so long from now, whatever is left of its lease; with `lease`, as one of that kind."""
        until_at = self.clock.now() + duration_ms
        await self._insist(self._extend, duration_ms, lease)
        self.lease_until_at = until_at

    async def settle(self, settlement: Settlement) -> None:
        """Ends the claim."""
        await self._insist(self._store.settle, self.claim, settlement)
        self.is_settled = True

    async def _extend(self, duration_ms: int, lease: Lease | None) -> bool:
        (holds,) = await self._store.extend([self.claim], duration_ms, lease)
        if holds is None:
            raise StoreUnavailable("The store does not say whether the claim holds.")
        return holds

    async def _insist(self, operation: Callable[P, Awaitable[bool]], *args: P.args, **more: P.kwargs) -> None:
        for pause_ms in PAUSES_MS:
            try:
                holds = await operation(*args, **more)
                break
            except StoreUnavailable:
                await self.clock.sleep(pause_ms)
        else:
            holds = await operation(*args, **more)
        if not holds:
            raise ClaimLost
