"""The clock that goes by the store's."""

import time

import pytest

from turntake.clock import DRIFT_WATCHED_MS, SET_BACK_MS, STAND_STILL_MS, SystemClock

HOUR_MS = 3_600_000


class Steady:
    """Time as the machine counts it, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def pass_ms(self, duration_ms: int) -> None:
        self.seconds += duration_ms / 1000


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    steady = Steady()
    monkeypatch.setattr(time, "clock_gettime", lambda _: steady.seconds)
    return steady


@pytest.fixture
def clock(steady: Steady) -> SystemClock:
    clock = SystemClock()
    clock.follow(HOUR_MS)
    return clock


def test_it_starts_with_the_stores_time_whatever_its_own(clock: SystemClock) -> None:
    """Two machines an hour apart agree."""
    assert clock.now() == HOUR_MS


def test_it_starts_with_the_stores_time_also_if_it_was_asked_before(steady: Steady) -> None:
    """Nothing was decided yet by the machine's own time, so going back harms nobody."""
    clock = SystemClock()
    assert clock.now() > HOUR_MS
    clock.follow(HOUR_MS)
    assert clock.now() == HOUR_MS


@pytest.mark.parametrize("behind_ms", [700, HOUR_MS])
def test_it_catches_up_at_once(clock: SystemClock, behind_ms: int) -> None:
    """Whoever is behind would claim too late, also if the store's clock was set forward by an hour."""
    clock.follow(HOUR_MS + behind_ms)
    assert clock.now() == HOUR_MS + behind_ms


@pytest.mark.parametrize(("passed_ms", "under_way_ms"), [(300, 300), (10_000, 2_000)])
def test_a_word_that_was_long_under_way_changes_nothing(
    clock: SystemClock, steady: Steady, passed_ms: int, under_way_ms: int
) -> None:
    """It looks like being ahead."""
    steady.pass_ms(passed_ms)
    clock.follow(HOUR_MS + passed_ms - under_way_ms)
    assert clock.now() == HOUR_MS + passed_ms


def test_drift_is_taken_back_a_little_at_a_time_and_never_backwards(clock: SystemClock, steady: Steady) -> None:
    """5 ms too fast each second. The first minute's least is what its first word said; the second's is more."""
    seen = [clock.now()]
    for second in range(2 * DRIFT_WATCHED_MS // 1000 + 1):
        steady.pass_ms(1_005)
        clock.follow(HOUR_MS + (second + 1) * 1_000)
        seen.append(clock.now())
    assert seen == sorted(seen)
    ahead = seen[-1] - (HOUR_MS + len(seen[1:]) * 1_000)
    assert ahead == len(seen[1:]) * 5 - 5 - STAND_STILL_MS


def test_drift_is_seen_though_single_words_are_late(clock: SystemClock, steady: Steady) -> None:
    """50 ms too fast each minute; six words of seven are 200 ms late, so only the least lateness of a minute counts."""
    before = 0
    for second in range(1, 241):
        steady.pass_ms(1_000 + second * 50 // 60 - (second - 1) * 50 // 60)
        store_ms = HOUR_MS + second * 1_000
        assert clock.now() >= max(before, store_ms - 2)
        before = clock.now()
        clock.follow(store_ms - (200 if second % 7 else 0))
        assert clock.now() >= before
    ahead_ms = clock.now() - (HOUR_MS + 240_000)
    assert abs(ahead_ms) <= 110, "left alone it would be 200 ms ahead"


def test_a_store_whose_clock_was_set_back_by_an_hour_is_not_followed_there(clock: SystemClock, steady: Steady) -> None:
    """It goes on as before, for as long as the store's clock needs to catch up."""
    for second in range(10, 4_000, 10):
        steady.pass_ms(10_000)
        clock.follow(second * 1_000)
        assert clock.now() == HOUR_MS + second * 1_000


def test_a_store_whose_clock_was_set_back_is_not_followed(clock: SystemClock, steady: Steady) -> None:
    """Its deadlines were given by the time before."""
    for _ in range(3):
        steady.pass_ms(DRIFT_WATCHED_MS)
        clock.follow(HOUR_MS - SET_BACK_MS)
    assert clock.now() == HOUR_MS + 3 * DRIFT_WATCHED_MS


def test_it_is_never_before_what_somebody_saw(clock: SystemClock) -> None:
    clock.not_before(2 * HOUR_MS)
    assert clock.now() == 2 * HOUR_MS
