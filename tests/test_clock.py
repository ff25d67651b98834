"""The clock that goes by the store's."""

import asyncio
import time
from itertools import pairwise

import pytest

from turntake.clock import APART_MS, DAY_MS, DRIFT_WATCHED_MS, SET_BACK_MS, STAND_STILL_MS, SystemClock
from turntake.testing.clock import VirtualClock

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


class Wall(Steady):
    """Time as the machine shows it, which anybody may set."""


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    wall = Wall()
    wall.seconds = 1_700_000_000.0
    monkeypatch.setattr(time, "time", lambda: wall.seconds)
    return wall


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


def test_a_store_whose_clock_was_set_back_is_met_by_running_a_tenth_slower(clock: SystemClock, steady: Steady) -> None:
    """Its deadlines were given by the time before, so nothing goes back; after ten hours an hour is caught up, and what
    drift may be is left."""
    seen = []
    for second in range(0, 36_000, 10):
        clock.follow(second * 1_000)
        seen.append(clock.now())
        steady.pass_ms(10_000)
    gone = [after - before for before, after in pairwise(seen)]
    assert set(gone[:-100]) <= {8_999, 9_000, 9_001}
    assert clock.now() - 36_000_000 == pytest.approx(SET_BACK_MS, abs=1_000)


def test_a_machine_whose_clock_was_set_back_is_met_by_running_a_tenth_slower(steady: Steady, wall: Wall) -> None:
    """As with SQLite, which has no clock of its own. Nothing goes back; the time meets the wall, and keeps to it."""
    clock = SystemClock()
    start = clock.now()
    wall.seconds -= 60
    for duration_ms, passed_ms in ((100_000, 90_000), (400_000, 360_000), (200_000, 190_000), (50_000, 50_000)):
        before = clock.now()
        steady.pass_ms(duration_ms)
        wall.pass_ms(duration_ms)
        assert clock.now() - before == pytest.approx(passed_ms, abs=2)
    assert clock.now() == pytest.approx(clock.wall(), abs=2)
    assert clock.wall() == pytest.approx(start - 60_000 + 750_000, abs=2)


def test_while_it_runs_slower_it_never_stands_still_for_long(steady: Steady, wall: Wall) -> None:
    clock = SystemClock()
    wall.seconds -= 60
    seen = []
    for _ in range(300):
        seen.append(clock.now())
        steady.pass_ms(100)
        wall.pass_ms(100)
    assert {after - before for before, after in pairwise(seen)} <= {89, 90, 91}


async def test_a_timer_counts_from_now_however_long_nobody_asked_for_the_time(
    steady: Steady, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda delay, action: delays.append(round(delay, 3)))
    clock = SystemClock()
    at = clock.now() + 9_000
    steady.pass_ms(5_000)
    wall.pass_ms(5_000)
    clock.call_at(at, lambda: None)
    monkeypatch.undo()
    assert delays == [pytest.approx(4.0, abs=0.002)]


async def test_a_time_limit_that_was_kept_ends_with_what_it_was_for() -> None:
    clock = VirtualClock()
    async with clock.limit(1_000):
        await clock.advance(999)
    await clock.advance(10)


def test_what_others_saw_a_moment_ahead_of_the_store_is_no_reason_to_step_forward(clock: SystemClock) -> None:
    """Each would take the others along, further and further."""
    clock.follow(HOUR_MS, HOUR_MS + APART_MS)
    assert clock.now() == HOUR_MS
    clock.follow(HOUR_MS, HOUR_MS + APART_MS + 1)
    assert clock.now() == pytest.approx(HOUR_MS + APART_MS + 1, abs=1)


async def test_a_timer_waits_longer_while_the_clock_runs_slower(
    steady: Steady, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would ring before its time has come, again and again."""
    delays: list[float] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda delay, action: delays.append(round(delay, 3)))
    clock = SystemClock()
    now = clock.now()
    clock.call_at(now + 9_000, lambda: None)
    wall.seconds -= 60
    for left_ms in (9_000, 900_000):
        clock.call_at(now + left_ms, lambda: None)
    monkeypatch.undo()
    assert delays == [pytest.approx(delay, abs=0.002) for delay in (9.0, 10.0, 960.0)]


def test_the_wall_is_what_the_machine_says_whatever_the_store_saw(steady: Steady, wall: Wall) -> None:
    """Signatures are judged by others' clocks: one wrong time in a store must not refuse every webhook for ever, and a
    machine that was put right is right at once."""
    clock = SystemClock()
    clock.resume(clock.now() + 7 * DAY_MS)
    assert clock.now() - clock.wall() == pytest.approx(7 * DAY_MS, abs=2)
    wall.seconds += 600
    assert clock.wall() == int(wall.seconds * 1000)


class TestDoubt:
    """How much of the time may be the error of some clock."""

    def test_a_clock_that_agrees_with_the_store_leaves_none(self, steady: Steady, wall: Wall) -> None:
        clock = SystemClock()
        clock.resume(clock.now() - 1_000)
        assert (clock.ahead_ms, clock.doubtful_ms) == (0, 0)

    def test_a_machine_that_starts_days_later_was_off_or_is_wrong(self, steady: Steady, wall: Wall) -> None:
        """Nobody saw that time pass. It is made up for by as much time that somebody does see pass."""
        clock = SystemClock()
        clock.resume(clock.now() - 9 * DAY_MS)
        assert (clock.ahead_ms, clock.doubtful_ms) == (0, 9 * DAY_MS)
        for machine in (steady, wall):
            machine.pass_ms(4 * DAY_MS)
        clock.now()
        assert clock.doubtful_ms == 5 * DAY_MS
        for machine in (steady, wall):
            machine.pass_ms(6 * DAY_MS)
        clock.now()
        assert clock.doubtful_ms == 0

    def test_a_store_that_was_never_used_says_nothing(self, steady: Steady, wall: Wall) -> None:
        clock = SystemClock()
        clock.resume(0)
        assert clock.doubtful_ms == 0

    def test_a_machine_that_is_behind_the_store_knows_that_the_store_was_ahead(
        self, steady: Steady, wall: Wall
    ) -> None:
        clock = SystemClock()
        clock.resume(clock.now() + 9 * DAY_MS)
        assert clock.ahead_ms == clock.doubtful_ms == pytest.approx(9 * DAY_MS, abs=2)

    def test_a_server_that_jumps_while_we_watch_may_be_wrong(self, steady: Steady, wall: Wall) -> None:
        """A process that joins later sees only that the server is ahead of its machine."""
        clock, later = SystemClock(), SystemClock()
        start = clock.now()
        clock.follow(start)
        clock.follow(start + 9 * DAY_MS)
        later.follow(start + 9 * DAY_MS)
        later.resume(start + 9 * DAY_MS)
        assert clock.now() == later.now() == start + 9 * DAY_MS
        assert clock.doubtful_ms >= 9 * DAY_MS
        assert later.doubtful_ms == pytest.approx(9 * DAY_MS, abs=2)


def test_it_is_never_before_what_somebody_saw(clock: SystemClock) -> None:
    clock.not_before(2 * HOUR_MS)
    assert clock.now() == 2 * HOUR_MS
