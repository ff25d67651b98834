"""Claims for a worker: whatever is due while there are slots enough, and else by priority and by each tenant's share.

How this works: where nobody sets priorities or shares and there is one tenant, the earliest are claimed, and nothing
else is asked. Where there is something to choose between, half of the free slots are still filled in that way, which
costs nothing more. Only if that was not enough for all that is due, the next claim is by the order of
`rules/fairness.py`, for which the store reads who else is due; and so are those that follow, until nobody waits.
"""

from collections import Counter
from collections.abc import Collection

from turntake.claim.attempt import Attempt, Ports
from turntake.rules.fairness import FairOrder
from turntake.rules.key import DEFAULT_TENANT
from turntake.rules.records import Claim
from turntake.rules.scopes import RuleBook

# Something is due and others hold it for this moment. To ask again at once would only keep the store busy.
ALL_TAKEN_PAUSE_MS = 5
# All that is due is of tenants that have their share. The end of any of their turns wakes the worker, and so does what
# falls due for others, unless its hint was lost.
SHARES_TAKEN_PAUSE_MS = 50


class FairClaims:
    """The claims of one process, whose attempts are in `running`."""

    def __init__(self, ports: Ports, running: Collection[Attempt], slots: int) -> None:
        self._ports = ports
        self._running = running
        self._order = FairOrder(ports.rules_for, slots)
        self._book: RuleBook | None = None
        self._is_chosen = False
        """Whether there is anything to choose between."""
        self._is_limited = False
        """Whether a rule says how many turns of a tenant may run."""
        self._is_short = False
        """Whether more was due than could be claimed."""

    async def claim(self, free: int, lease_ms: int) -> list[Claim]:
        """Up to `free` of what is due."""
        if self._ports.book() is not self._book:
            self._read_book(self._ports.book())
        if not self._is_chosen:
            claims = await self._ports.store.claim(free, lease_ms)
            self._notice_tenants(claims)
            return claims
        at_once = 0 if self._is_short or self._is_limited else free // 2
        if not at_once:
            return await self._claim_in_order(free, lease_ms)
        claims = await self._ports.store.claim(at_once, lease_ms)
        self._is_short = len(claims) == at_once
        if not self._order.has_tenants:
            self._notice_tenants(claims)
        return claims

    @property
    def pause_ms(self) -> int:
        """How long to wait after a claim that got nothing, though something is due."""
        return SHARES_TAKEN_PAUSE_MS if self._is_short else ALL_TAKEN_PAUSE_MS

    async def _claim_in_order(self, free: int, lease_ms: int) -> list[Claim]:
        order = self._order
        order.running = Counter(attempt.claim.key.tenant for attempt in self._running if not attempt.is_sending)
        claims = await self._ports.store.claim(free, lease_ms, order)
        for claim in claims:
            order.took(claim.key, claim.turn.agent)
        self._notice_tenants(claims)
        # Who fills all slots may find more due when one is free again.
        self._is_short = order.is_short or len(claims) == free
        return claims

    def _notice_tenants(self, claims: list[Claim]) -> None:
        for claim in claims:
            if claim.key.tenant != DEFAULT_TENANT:
                self._order.has_tenants = self._is_chosen = True

    def _read_book(self, book: RuleBook) -> None:
        self._book = book
        self._is_limited = book.names("tenant_turns")
        self._order.is_by_agent = book.names("priority", kind="agent")
        self._order.has_tenants |= book.has_tenants
        self._is_chosen = self._order.has_tenants or book.names("priority", "tenant_turns")
