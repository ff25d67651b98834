"""Keeps the leases of running attempts, so that only a worker that died loses its claims."""

import asyncio
import logging
from collections.abc import Mapping

from turntake.buffer.store import Store
from turntake.claim.attempt import Attempt

log = logging.getLogger("turntake")

# Two extensions may fail before a lease ends.
EXTENSIONS_PER_LEASE = 3


class LeaseKeeper:
    """Extends every running claim again and again, in one call to the store. One that was lost is cancelled."""

    def __init__(self, store: Store, running: Mapping[Attempt, "asyncio.Task[None]"], lease_ms: int) -> None:
        self._store = store
        self._running = running
        self._lease_ms = lease_ms
        self._pause_ms = lease_ms // EXTENSIONS_PER_LEASE
        self._extend_at = 0

    async def run(self) -> None:
        """Extends for as long as the worker lives."""
        while True:
            await self._store.clock.sleep(self._pause_ms)
            try:
                await self._extend()
            except Exception as error:
                log.warning("Leases were not extended", extra={"action": "extend", "error": type(error).__name__})

    async def extend_if_late(self) -> None:
        """For a worker that is about to claim: a process that stood still keeps its own turns before it competes."""
        if self._store.clock.now() >= self._extend_at:
            await self._extend()

    async def _extend(self) -> None:
        now = self._store.clock.now()
        # An agent that was given longer, by `turn.extend` or a 202, would lose that time by a shorter extension.
        attempts = [a for a in self._running if not a.is_pending and a.held.lease_until_at <= now + self._lease_ms]
        kept = await self._store.extend([a.claim for a in attempts], self._lease_ms) if attempts else []
        self._extend_at = now + self._pause_ms
        for attempt, is_kept in zip(attempts, kept, strict=True):
            if not is_kept and attempt in self._running and not attempt.held.is_settled:
                self._running[attempt].cancel()
