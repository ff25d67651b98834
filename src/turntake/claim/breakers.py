"""The breakers of one process: one for each agent, and one for each account that answers leave through.

How this works: whoever calls an agent or a platform reports here whether anybody was there. Before a turn is started,
the worker asks here whether it may be. While the breaker is open, one turn becomes the probe whenever a probe is due;
the others are handed back to the store. The first of them comes back for the next probe, the rest after a pause that
grows with the time for which nobody was there, so that a long queue is not claimed and handed back all the time. As
soon as a call finds somebody, every turn that this process handed back is brought forward.
"""

import asyncio
import logging
from collections.abc import Callable
from random import random

from msgspec.structs import replace

from turntake.buffer.store import Store
from turntake.errors import StoreUnavailable
from turntake.rules.breaker import FIRST_PROBE_MS, Breaker, missed, probed, wait_ms
from turntake.rules.conversation import Retry
from turntake.rules.records import Claim
from turntake.rules.retry import LONGEST_AWAY_MS

log = logging.getLogger("turntake")

# Turns that are brought forward: more than this come back by themselves, within a minute. About 1 KB each.
REMEMBERED = 10_000
# More than an installation has agents and accounts. A message may name any agent, so that strangers could make up more;
# the breaker that was there longest is forgotten first, and opens again after a few calls.
MOST_BREAKERS = 1_000
# Turns that are brought forward come back within this, so that a process that just started is not run over.
BROUGHT_FORWARD_MS = 1_000

Destination = tuple[str, str, str]
"""("agent", its name, "") or ("account", channel, account)."""
Called = Callable[[Claim], Destination]
"""Whom a call for a claim goes to: `agent_of`, `account_of` or `next_call`."""

CLOSED = Breaker()


def agent_of(claim: Claim) -> Destination:
    return "agent", claim.turn.agent, ""


def account_of(claim: Claim) -> Destination:
    return "account", claim.key.channel, claim.key.account


def next_call(claim: Claim) -> Destination:
    """Whom an attempt calls first: a turn with something saved that has not left is sent."""
    progress = claim.turn.progress
    return account_of(claim) if progress.is_final or progress.sent < len(progress.replies) else agent_of(claim)


class Breakers:
    """What this process knows of those it calls."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        """`wake` is called when turns were brought forward."""
        self._store = store
        self._wake = wake
        self._breakers: dict[Destination, Breaker] = {}
        self._has_next_probe: set[Destination] = set()
        self._waiting: dict[str, tuple[Destination, Claim]] = {}
        """By the id of the turn."""
        self._tasks: set[asyncio.Task[None]] = set()

    def pause_ms(self, called: Called, claim: Claim) -> int:
        """0 if the turn may be tried now; else for how long it is to be handed back."""
        if not self._breakers:  # all are there, as nearly always
            return 0
        destination = called(claim)
        breaker = self._breakers.get(destination)
        if breaker is None or not breaker.is_open:
            return 0
        now = self._store.clock.now()
        until_probe_ms = wait_ms(breaker, now)
        if not until_probe_ms:
            self._breakers[destination] = probed(breaker, now)
            self._has_next_probe.discard(destination)
            return 0
        self._remember(destination, claim)
        if destination not in self._has_next_probe:
            self._has_next_probe.add(destination)
            return until_probe_ms
        longest_ms = min(max(now - breaker.since, FIRST_PROBE_MS), LONGEST_AWAY_MS)
        return max(until_probe_ms, int(longest_ms * (0.5 + random() / 2))) + 1

    def missed(self, called: Called, claim: Claim) -> None:
        """A call found nobody there."""
        destination = called(claim)
        before = self._breakers.get(destination, CLOSED)
        breaker = self._breakers[destination] = missed(before, self._store.clock.now())
        self._remember(destination, claim)
        if len(self._breakers) > MOST_BREAKERS:
            self._forget(next(iter(self._breakers)))
        if breaker.is_open and not before.is_open:
            log.warning("Nobody is there; turns wait until a probe finds somebody", extra=_facts(destination))

    def reached(self, called: Called, claim: Claim) -> None:
        """A call found somebody: whoever waits for that may come."""
        if not self._breakers:
            return
        destination = called(claim)
        breaker = self._breakers.get(destination)
        if breaker is None:
            return
        waiting = self._forget(destination)
        if breaker.is_open:
            log.warning("Somebody is there again", extra=_facts(destination) | {"waiting": len(waiting)})
            task = asyncio.create_task(self._bring_forward(waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _forget(self, destination: Destination) -> list[Claim]:
        """Those that waited for it."""
        del self._breakers[destination]
        self._has_next_probe.discard(destination)
        waiting = [claim for place, claim in self._waiting.values() if place == destination]
        for claim in waiting:
            del self._waiting[claim.turn.id]
        return waiting

    def _remember(self, destination: Destination, claim: Claim) -> None:
        if len(self._waiting) < REMEMBERED or claim.turn.id in self._waiting:
            self._waiting[claim.turn.id] = destination, replace(claim, messages=())

    async def _bring_forward(self, claims: list[Claim]) -> None:
        """A claim that was handed back is still the turn's latest; if somebody took it since, this changes nothing."""
        for start in range(0, len(claims), 100):
            settling = (
                self._store.settle(claim, Retry(int(random() * BROUGHT_FORWARD_MS), is_failure=False))
                for claim in claims[start : start + 100]
            )
            answers = await asyncio.gather(*settling, return_exceptions=True)
            if any(isinstance(answer, StoreUnavailable) for answer in answers):
                return
            self._wake()


def _facts(destination: Destination) -> dict[str, str]:
    kind, name, account = destination
    named = {"agent": name} if kind == "agent" else {"channel": name, "account": account}
    return {"action": "break", **named}
