"""Keeps the leases of running attempts, so that only a worker that died loses its claims."""

import asyncio
import logging
from collections.abc import Mapping

from turntake.buffer.store import Store
from turntake.claim.attempt import Attempt

log = logging.getLogger("turntake")

# Two extensions may fail before a lease ends.
EXTENSIONS_PER_LEASE = 3
# How long a claim waits for an extension: a hundred times what one takes. Longer, a part of the store is away.
PATIENCE_MS = 200


class LeaseKeeper:
    """Extends every running claim again and again, in one call to the store. One that was lost is cancelled."""

    def __init__(self, store: Store, running: Mapping[Attempt, "asyncio.Task[None]"], lease_ms: int) -> None:
        self._store = store
        self._running = running
        self._lease_ms = lease_ms
        self._pause_ms = lease_ms // EXTENSIONS_PER_LEASE
        self._extend_at = 0
        self._extending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Extends for as long as the worker lives."""
        try:
            while True:
                await self._store.clock.sleep(self._pause_ms)
                await asyncio.wait([self._extension()])
        finally:
            if self._extending is not None:
                self._extending.cancel()

    async def extend_if_late(self) -> None:
        """For a worker that is about to claim: a process that stood still keeps its own turns before it competes.

        It waits no longer than a moment: a part of the store that is away must not keep the worker from the others.
        """
        if self._store.clock.now() >= self._extend_at:
            await asyncio.wait([self._extension()], timeout=PATIENCE_MS / 1000)

    def _extension(self) -> "asyncio.Task[None]":
        """The extension that is under way, or a new one."""
        if self._extending is None or self._extending.done():
            self._extending = asyncio.create_task(self._extend())
        return self._extending

    async def _extend(self) -> None:
        now = self._store.clock.now()
        self._extend_at = now + self._pause_ms
        # An agent that was given longer, by `turn.extend` or a 202, would lose that time by a shorter extension.
        attempts = [a for a in self._running if not a.is_pending and a.held.lease_until_at <= now + self._lease_ms]
        try:
            kept = await self._store.extend([a.claim for a in attempts], self._lease_ms) if attempts else []
        except Exception as error:
            self._extend_at = now
            log.warning("Leases were not extended", extra={"action": "extend", "error": type(error).__name__})
            return
        if None in kept:
            facts = {"action": "extend", "claims": sum(is_kept is None for is_kept in kept)}
            log.warning("Some leases were not extended; a part of the store does not answer", extra=facts)
        for attempt, is_kept in zip(attempts, kept, strict=True):
            if is_kept is False and attempt in self._running and not attempt.held.is_settled:
                self._running[attempt].cancel()
