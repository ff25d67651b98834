"""Which worker wakes for which deadline: a few for each, every worker for its share, and all agree."""

import hashlib
from collections import Counter

import pytest

from turntake.rules.watch import (
    ALONE,
    JOIN_MS,
    LIVING_MS,
    OVERDUE_MS,
    SLICE_MS,
    STAGGER_MS,
    WATCHERS,
    Place,
    may_claim_at,
    place_of,
    wake_at,
    watches,
)

NOW = 1_700_000_000_000
DEADLINES = range(NOW, NOW + 100_000, 97)


@pytest.mark.parametrize("shards", [1, 3, 16, 256])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 40, 300])
def test_every_deadline_has_a_first_watcher_and_others_a_moment_later(workers: int, shards: int) -> None:
    places = [Place(number, workers) for number in range(workers)]
    for due_at in DEADLINES[:50]:
        shard = due_at % shards
        wakes = [at for place in places if (at := wake_at(place, shard, shards, due_at)) is not None]
        assert sorted(wakes) == [due_at + STAGGER_MS * number for number in range(min(workers, WATCHERS))]
        for place in places:
            if wake_at(place, shard, shards, due_at) is not None:
                assert watches(place, shard, shards)


@pytest.mark.parametrize("workers", [2, 7, 40])
def test_the_deadlines_of_one_shard_are_shared_out_evenly(workers: int) -> None:
    first = Counter(
        number
        for due_at in DEADLINES
        for number in range(workers)
        if wake_at(Place(number, workers), 0, 1, due_at) == due_at
    )
    share = len(DEADLINES) / workers
    assert all(share / 2 < first[number] < 2 * share for number in range(workers))


def test_with_more_shards_than_workers_each_watches_some_of_them() -> None:
    """So that it need not look at the others."""
    watched = [sum(watches(Place(number, 40), shard, 256) for shard in range(256)) for number in range(40)]
    assert sum(watched) == 256 * WATCHERS
    assert max(watched) < 30


@pytest.mark.parametrize(("workers", "shards"), [(40, 1), (300, 256), (7, 3)])
def test_with_more_workers_than_shards_each_watches_one_all_the_same(workers: int, shards: int) -> None:
    for number in range(workers):
        assert any(watches(Place(number, workers), shard, shards) for shard in range(shards))


def test_whoever_is_late_once_to_say_that_it_lives_is_counted_on() -> None:
    assert LIVING_MS > 2 * JOIN_MS


def test_deadlines_close_to_each_other_have_the_same_watchers() -> None:
    """One hint is enough for them."""
    start = NOW // SLICE_MS * SLICE_MS
    for number in range(40):
        wakes = [wake_at(Place(number, 40), 0, 1, due_at) for due_at in (start, start + SLICE_MS - 1)]
        assert (wakes[0] is None) == (wakes[1] is None)


def test_what_is_overdue_is_anybodys() -> None:
    stranger = next(place for place in (Place(n, 40) for n in range(40)) if wake_at(place, 0, 1, NOW) is None)
    assert may_claim_at(stranger, 0, 1, NOW) == NOW + OVERDUE_MS
    assert may_claim_at(ALONE, 0, 1, NOW) == NOW


def test_all_agree_on_their_places() -> None:
    """A worker that the list does not have yet counts itself in."""
    names = ["b", "c", "a"]
    assert [place_of(name, names) for name in sorted(names)] == [Place(0, 3), Place(1, 3), Place(2, 3)]
    assert place_of("d", names) == Place(3, 4)
    assert place_of("d", []) == ALONE


def test_whoever_died_is_soon_not_counted_on() -> None:
    """Of four workers one is killed every three seconds and started again under another name. Few deadlines fall first
    to somebody who is dead."""
    said_at: dict[str, int] = {}
    joins = {f"worker{number}": number * JOIN_MS // 4 for number in range(4)}
    places: dict[str, Place] = {}
    is_in_time: list[bool] = []
    for now in range(0, 300_000, 50):
        for worker, at in joins.items():
            if at <= now:
                said_at[worker], joins[worker] = now, at + JOIN_MS
                places[worker] = place_of(worker, [name for name, said in said_at.items() if said >= now - LIVING_MS])
        if now % 3_000 == 0 and now > 0:
            killed = min(joins, key=lambda name: hashlib.sha256(name.encode()).digest())
            del joins[killed], places[killed]
            joins[f"worker{now}"] = now + 500
        is_in_time.append(any(wake_at(place, 0, 1, now) == now for place in places.values()))
    assert is_in_time.count(False) < len(is_in_time) / 4
