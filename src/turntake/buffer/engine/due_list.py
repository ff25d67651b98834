"""What is due, as far as one process knows it, when it may not claim all of it.

How this works: the index of deadlines says who is due first, and not who is to be claimed first. So a process that is
short of slots reads more of the index than it may claim, keys and deadlines only, and `rules/fairness.py` picks.

Usually less is due than one look reads; then it is all there. If more is, the look reads on in two further places, a
page of each: at the end, where what fell due since the last look lies, and in between, one page after the other, where
it comes by everything after a while. From there it remembers a few of each lane. So a tenant with a hundred thousand
conversations due hides nobody, and nobody has to read them all at once.

What is remembered may have been claimed by others meanwhile; the offer then leaves it out, and it is forgotten here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from turntake.buffer.cursor import Cursor
from turntake.buffer.engine.backend import PAGE, Backend
from turntake.rules.fairness import ClaimOrder, DueTurn, Lane, Lanes, in_lanes
from turntake.rules.key import ConversationKey

# More than a process claims at once, and read within a millisecond.
FIRST = 200
# What one tenant can be given until the walk comes by again.
KEPT_IN_LANE = 100
# About 2 MB. With so many tenants waiting, some wait for the next round of the walk.
MOST_KEPT = 5_000
# A write may become visible this much later than the deadline that it sets.
LATE_MS = 100


class DueList:
    """One for each process. What it returns is what was due when it looked."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._further: dict[str, tuple[DueTurn, Lane]] = {}
        """Remembered from beyond the first look."""
        self._walked: Cursor | None = None
        self._newest: Cursor | None = None

    async def first(self, order: ClaimOrder, limit: int, now: int) -> list[ConversationKey]:
        """Up to `limit` conversations to claim next, in order."""
        return [turn.key for turn in order.first(await self._lanes(order, now), limit)]

    def forget(self, keys: Iterable[ConversationKey]) -> None:
        """They are claimed, or were not due any more."""
        for key in keys:
            self._further.pop(str(key), None)

    async def _lanes(self, order: ClaimOrder, now: int) -> Lanes:
        earliest = await self._read(None, FIRST, order, now)
        if len(earliest) < FIRST:
            self._further.clear()
            self._walked = self._newest = None
            return in_lanes(earliest)
        last, _ = earliest[-1]
        self._newest = await self._look_further(self._newest or Cursor(now - LATE_MS, ""), order, now)
        self._newest = self._newest or Cursor(now - LATE_MS, "")
        self._walked = await self._look_further(self._walked or Cursor(last.due_at, last.name), order, now)
        self._further = {name: one for name, one in self._further.items() if one[0] > last}
        return in_lanes([*earliest, *self._further.values()])

    async def _look_further(self, after: Cursor, order: ClaimOrder, now: int) -> Cursor | None:
        """Remembers some of a page, and returns where it ends; None if nothing comes after it."""
        page = await self._read(after, PAGE, order, now)
        kept = Counter(lane for _, lane in self._further.values())
        for turn, lane in page:
            if len(self._further) < MOST_KEPT and kept[lane] < KEPT_IN_LANE:
                kept[lane] += turn.name not in self._further
                self._further[turn.name] = turn, lane
        last = page[-1][0] if page else None
        return None if last is None or len(page) < PAGE else Cursor(last.due_at, last.name)

    async def _read(self, after: Cursor | None, limit: int, order: ClaimOrder, now: int) -> list[tuple[DueTurn, Lane]]:
        found = await self._backend.archive.due(after, limit, now)
        due = list(_readable(found))
        if not order.is_by_agent:
            return [(turn, order.lane_of(turn.key, "")) for turn in due]
        rows = await self._backend.load([turn.key for turn in due])
        lanes = (order.lane_of(turn.key, row.conversation.agent) for turn, row in zip(due, rows, strict=True))
        return list(zip(due, lanes, strict=True))


def _readable(found: Iterable[tuple[int, str]]) -> Iterator[DueTurn]:
    """Without names that are no keys: a claim of the earliest puts them off, and says so."""
    for due_at, name in found:
        with suppress(ValueError):
            yield DueTurn(due_at, name, ConversationKey.parse(name))
