"""From how long things are kept to what is forgotten now."""

import pytest

from turntake.clock import DAY_MS
from turntake.rules.retention import HOUR_MS, Cutoffs, Retention, cutoffs

NOW = 20_000 * DAY_MS + 90 * 60_000


def test_turns_ids_and_letters_each_have_their_own_time() -> None:
    """Ids by the full hour, so that a long conversation is not looked through every minute."""
    retention = Retention(HOUR_MS, 8 * DAY_MS, 30 * DAY_MS)
    assert cutoffs(retention, NOW, 0, 0) == Cutoffs(NOW - HOUR_MS, NOW - NOW % HOUR_MS - 8 * DAY_MS, NOW - 30 * DAY_MS)


@pytest.mark.parametrize("turns_ms", [0, HOUR_MS])
def test_letters_are_kept_for_ever_unless_they_have_a_time(turns_ms: int) -> None:
    assert cutoffs(Retention(turns_ms, 0), NOW, 0, 0).letters is None


def test_a_short_memory_of_ids_is_not_made_much_longer_by_rounding() -> None:
    (_, ids, _) = cutoffs(Retention(0, 24_000), NOW + 7, 0, 0)
    assert NOW + 7 - 24_000 - 1_000 < ids <= NOW + 7 - 24_000


def test_what_is_known_to_be_ahead_counts_for_all_and_what_may_be_for_ids_and_letters() -> None:
    """What people said is not kept longer for a doubt; a message that comes again must not look new for one."""
    retention = Retention(HOUR_MS, 24 * HOUR_MS, DAY_MS)
    right = cutoffs(retention, NOW, 0, 0)
    doubtful = cutoffs(retention, NOW + 9 * DAY_MS, 0, 9 * DAY_MS)
    assert doubtful == right._replace(turns=right.turns + 9 * DAY_MS)
    assert cutoffs(retention, NOW + 9 * DAY_MS, 9 * DAY_MS, 9 * DAY_MS) == right
