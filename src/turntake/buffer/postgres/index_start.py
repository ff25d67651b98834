"""From where on the index of deadlines is read.

A row that moves leaves its old place in the index until vacuum comes, which one old snapshot can hold up for hours. All
those places lie before the earliest deadline there is, so a look may begin there and meet none of them. Rows may still
be written before it, as when messages waited for long behind an answer: our own and those we hear of lower the floor,
and once a horizon a look begins at the very start.
"""

from typing import NamedTuple

from turntake.buffer.store import HORIZON_MS


class Look(NamedTuple):
    """A look at the index, from `start` on."""

    start: int
    at: int
    lowered: int


class Floor:
    def __init__(self) -> None:
        self._at = 0
        self._looked_at: int | None = None
        self._lowered = 0

    def look(self, now: int) -> Look:
        """Where to begin now."""
        is_fresh = self._looked_at is not None and now < self._looked_at + HORIZON_MS
        return Look(self._at if is_fresh else 0, now, self._lowered)

    def start(self, now: int) -> int:
        """Where a claim begins: whoever claims also looks, and what a look finds is no longer below."""
        return self._at if self._looked_at is not None and now < self._looked_at + 2 * HORIZON_MS else 0

    def found(self, look: Look, due_at: int | None) -> None:
        """What the look saw first. What is written from then on is due no earlier than a horizon before it."""
        if not look.start:
            self._looked_at = look.at
        if look.lowered == self._lowered:
            latest = look.at - HORIZON_MS
            self._at = latest if due_at is None else min(due_at, latest)

    def lower(self, due_at: int | None, now: int) -> None:
        """Somebody writes a row that is due then."""
        if due_at is not None and due_at < now - HORIZON_MS:
            self._at = min(self._at, due_at)
            self._lowered += 1
