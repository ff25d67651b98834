"""A claim as its worker holds it: what may be done with it in the store, patiently."""

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from turntake.buffer.store import Store
from turntake.errors import ClaimLost, StoreUnavailable
from turntake.rules.busy import was_stale
from turntake.rules.conversation import Lease, Progress, Settlement
from turntake.rules.message import Message
from turntake.rules.records import Claim, waiting_behind
from turntake.rules.rules import Rules

P = ParamSpec("P")
T = TypeVar("T")

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

    async def absorb(self, rules: Rules) -> Claim:
        """The claim with all that its turn has by now; with what waited too, as far as the rules let it."""
        self.claim = await self._insist(self._store.absorb, self.claim, rules)
        return self.claim

    async def waiting(self) -> tuple[Message, ...]:
        """What waits behind the turn; nothing if the claim was lost, or if the store does not say."""
        try:
            found = await self._store.find(self.claim.key)
        except StoreUnavailable:
            return ()
        return () if found is None else waiting_behind(found, self.claim)

    async def settle(self, settlement: Settlement) -> None:
        """Ends the claim."""
        await self._insist(self._store.settle, self.claim, settlement)
        self.is_settled = True

    async def withdrawn_as(self) -> str:
        """ "interrupted" or "discarded" if the answer that this claim brought was stale; else ""."""
        try:
            record = await self._store.history.turn(self.claim.turn.id)
        except StoreUnavailable:
            return ""
        return record.status if record is not None and was_stale(record.closed, self.claim.epoch) else ""

    async def _extend(self, duration_ms: int, lease: Lease | None) -> bool:
        (holds,) = await self._store.extend([self.claim], duration_ms, lease)
        if holds is None:
            raise StoreUnavailable("The store does not say whether the claim holds.")
        return holds

    async def _insist(self, operation: Callable[P, Awaitable[T | None]], *args: P.args, **more: P.kwargs) -> T:
        for pause_ms in PAUSES_MS:
            try:
                result = await operation(*args, **more)
                break
            except StoreUnavailable:
                await self.clock.sleep(pause_ms)
        else:
            result = await operation(*args, **more)
        if not result:
            raise ClaimLost
        return result
