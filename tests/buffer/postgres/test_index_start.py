"""The low-water mark of the index of deadlines: it may be too low, and never hides what is due."""

from turntake.buffer.postgres.index_start import IndexStart
from turntake.buffer.store import HORIZON_MS

NOW = 1_700_000_000_000


def looked(start: IndexStart, now: int, due_at: int | None) -> int:
    """Where a whole reading began; it saw this deadline first."""
    look = start.look(now)
    start.looked(look, due_at)
    return look.start


def test_the_first_look_begins_at_the_beginning_and_the_next_at_what_it_saw() -> None:
    start = IndexStart()
    assert start.for_claim(NOW) == 0
    assert looked(start, NOW, NOW - 5 * HORIZON_MS) == 0
    assert looked(start, NOW + 1, NOW - 5 * HORIZON_MS) == start.for_claim(NOW + 1) == NOW - 5 * HORIZON_MS


def test_the_mark_stays_a_horizon_behind_the_time() -> None:
    """What is written from now on may be due now."""
    for due_at in (None, NOW, NOW + 60_000):
        start = IndexStart()
        looked(start, NOW, due_at)
        assert start.for_claim(NOW) == NOW - HORIZON_MS


def test_once_per_horizon_all_is_read() -> None:
    """A row may have been written before the mark, and no word of it heard."""
    start = IndexStart()
    looked(start, NOW, None)
    assert looked(start, NOW + HORIZON_MS - 1, None) == NOW - HORIZON_MS
    assert looked(start, NOW + HORIZON_MS, None) == 0


def test_a_claim_trusts_no_mark_that_is_two_horizons_old() -> None:
    start = IndexStart()
    looked(start, NOW, None)
    assert start.for_claim(NOW + 2 * HORIZON_MS - 1) == NOW - HORIZON_MS
    assert start.for_claim(NOW + 2 * HORIZON_MS) == 0


def test_what_is_overdue_when_it_is_written_lowers_the_mark() -> None:
    start = IndexStart()
    looked(start, NOW, None)
    for due_at in (None, NOW, NOW - HORIZON_MS):
        start.lower(due_at, NOW)
        assert start.for_claim(NOW) == NOW - HORIZON_MS
    start.lower(NOW - HORIZON_MS - 1, NOW)
    assert start.for_claim(NOW) == NOW - HORIZON_MS - 1


def test_a_look_that_was_under_way_meanwhile_does_not_raise_it_again() -> None:
    """It may have read past the place before the row was written there."""
    start = IndexStart()
    looked(start, NOW, None)
    look = start.look(NOW + 1)
    start.lower(NOW - 9 * HORIZON_MS, NOW + 1)
    start.looked(look, None)
    assert start.for_claim(NOW + 1) == NOW - 9 * HORIZON_MS
    looked(start, NOW + 2, NOW - 9 * HORIZON_MS)
    assert start.for_claim(NOW + 2) == NOW - 9 * HORIZON_MS
