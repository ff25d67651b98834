"""Which worker wakes for which deadline.

How this works: if every worker woke for every deadline, all of them would ask the store and one would get the turn:
forty workers, forty times the questions. So each deadline has a few workers that watch it. All workers know who else
works, in the same order. A deadline falls to one of them, and the next two in that order wake a moment later, in case
that the first is busy or gone; what it claimed is no longer due by then. If none of them came, whoever looks next for
another reason takes what is overdue.

Where conversations lie in shards, a worker watches some shards and need not look at the others. With more workers than
shards, the deadlines of a shard are shared out too, a slice of time to each.
"""

from collections.abc import Iterable
from typing import NamedTuple

# One that wakes first, one in case that it is busy, and one in case that it died: two looks in vain for each deadline.
WATCHERS = 3
# A claim takes a few milliseconds: whoever comes this much later sees that there is nothing left to do.
STAGGER_MS = 10
# Whoever finds something due for longer takes it, whoever watches it: its watchers had their time.
OVERDUE_MS = 50
# Deadlines this close to each other have the same watchers, so that a burst needs one hint and not one for each. Every
# worker gets every hint: forty workers that get twenty a second cost a Redis server as much as the messages do.
SLICE_MS = 100
# How often a worker says that it lives: as often as an idle one looks anyway. And after how long a silent one is not
# counted on: it missed two of them. Until then the turns that it should wake for are late by the moment that the next
# watcher waits, so this must be short: with four workers of which one is killed every three seconds and started again,
# half of all deadlines would fall to the dead if those counted for twelve seconds, and a fifth does as it is.
JOIN_MS = 1_000
LIVING_MS = 2_500
# Slices that follow each other fall to workers far apart (Knuth's multiplier for hashing).
_SPREAD = 2_654_435_761


class Place(NamedTuple):
    """A worker's number among those that live, in an order that all agree on."""

    number: int = 0
    workers: int = 1


ALONE = Place()


def place_of(worker: str, living: Iterable[str]) -> Place:
    names = sorted({worker, *living})
    return Place(names.index(worker), len(names))


def slice_of(due_at: int) -> int:
    """Deadlines of one slice have the same watchers."""
    return due_at // SLICE_MS


def watches(place: Place, shard: int, shards: int) -> bool:
    """Whether this worker watches any deadlines of the shard."""
    return any(_distance(place, shard + shards * part) < WATCHERS for part in range(parts(place, shards)))


def wake_at(place: Place, shard: int, shards: int, due_at: int) -> int | None:
    """When this worker wakes for a deadline; None if it is for others to watch."""
    if place.workers == 1:
        return due_at
    part = (slice_of(due_at) * _SPREAD >> 16) % parts(place, shards)
    distance = _distance(place, shard + shards * part)
    return due_at + distance * STAGGER_MS if distance < WATCHERS else None


def may_claim_at(place: Place, shard: int, shards: int, due_at: int) -> int:
    """From when on this worker may claim what is due at `due_at`, should it look."""
    woken_at = wake_at(place, shard, shards, due_at)
    return due_at + OVERDUE_MS if woken_at is None else woken_at


def parts(place: Place, shards: int) -> int:
    """Into how many parts the deadlines of a shard are shared out."""
    return -(-place.workers // shards)


def _distance(place: Place, first: int) -> int:
    """How many workers wake earlier, if the first is this one."""
    return (place.number - first) % place.workers
