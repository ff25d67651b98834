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


def test_it_catches_up_at_once(clock: SystemClock) -> None:
    """Whoever is behind would claim too late."""
    clock.follow(HOUR_MS + 700)
    assert clock.now() == HOUR_MS + 700


def test_a_word_that_was_long_under_way_changes_nothing(clock: SystemClock, steady: Steady) -> None:
    """It looks like being ahead."""
    steady.pass_ms(300)
    clock.follow(HOUR_MS)
    assert clock.now() == HOUR_MS + 300


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


def test_a_store_whose_clock_was_set_back_is_not_followed(clock: SystemClock, steady: Steady) -> None:
    """Its deadlines were given by the time before."""
    for _ in range(3):
        steady.pass_ms(DRIFT_WATCHED_MS)
        clock.follow(HOUR_MS - SET_BACK_MS)
    assert clock.now() == HOUR_MS + 3 * DRIFT_WATCHED_MS


def test_it_is_never_before_what_somebody_saw(clock: SystemClock) -> None:
    clock.not_before(2 * HOUR_MS)
    assert clock.now() == 2 * HOUR_MS
