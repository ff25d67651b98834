"""Where reading the index of deadlines starts: its low-water mark.

How this works: PostgreSQL leaves the old index entry of a row that moved where it was until vacuum comes, and one old
snapshot can hold vacuum up for hours. Deadlines only move on, so these dead entries lie before the earliest deadline
that still counts. Reading from there on, and not from the beginning, meets none of them: a claim reads few pages,
however many dead entries there are.

A row may still be written before the mark: messages that waited long behind an answer are overdue the moment it ends.
Our own writes, and those that we hear of by a hint, lower the mark. For those that we do not hear of, once per horizon
the index is read from its very beginning.
"""

from typing import NamedTuple

from turntake.buffer.store import HORIZON_MS


class Look(NamedTuple):
    """One reading of the index for its earliest deadline; `lowered` is how often the mark was lowered before it."""

    start: int
    at: int
    lowered: int


class IndexStart:
    """The mark of one process. It costs nothing to have it too low; too high would hide a due conversation."""

    def __init__(self) -> None:
        self._mark = 0
        self._whole_at: int | None = None
        self._lowered = 0

    def look(self, now: int) -> Look:
        """Begins a reading: at the mark, or at the very beginning if that was last done a horizon ago."""
        is_fresh = self._whole_at is not None and now < self._whole_at + HORIZON_MS
        return Look(self._mark if is_fresh else 0, now, self._lowered)

    def for_claim(self, now: int) -> int:
        """Where a claim starts. Workers also look, once per horizon; if none did for two, the mark may be too high."""
        return self._mark if self._whole_at is not None and now < self._whole_at + 2 * HORIZON_MS else 0

    def looked(self, look: Look, due_at: int | None) -> None:
        """Raises the mark to what the reading saw first, but never to within a horizon of its time.

        Whatever is written from then on is due no earlier than that, or lowers the mark. A mark that was lowered while
        the reading was under way stays, since the reading may have missed that row.
        """
        if not look.start:
            self._whole_at = look.at
        if look.lowered == self._lowered:
            latest = look.at - HORIZON_MS
            self._mark = latest if due_at is None else min(due_at, latest)

    def lower(self, due_at: int | None, now: int) -> None:
        """A row is written that is due then."""
        if due_at is not None and due_at < now - HORIZON_MS:
            self._mark = min(self._mark, due_at)
            self._lowered += 1
