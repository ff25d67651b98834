"""When a breaker opens, when it lets a probe through, and how the pauses between probes grow."""

from turntake.rules.breaker import LONGEST_PROBE_MS, OPEN_AFTER, Breaker, missed, probed, wait_ms


def after_misses(count: int, now: int = 0) -> Breaker:
    breaker = Breaker()
    for _ in range(count):
        breaker = missed(breaker, now)
    return breaker


def test_it_opens_after_five_misses_in_a_row() -> None:
    assert not after_misses(OPEN_AFTER - 1).is_open
    assert after_misses(OPEN_AFTER).is_open
    assert wait_ms(after_misses(OPEN_AFTER - 1), 0) == 0
    assert wait_ms(after_misses(OPEN_AFTER), 0) == 1_000


def test_calls_that_were_under_way_when_it_opened_put_no_probe_off() -> None:
    breaker = missed(missed(after_misses(OPEN_AFTER), 900), 900)
    assert wait_ms(breaker, 1_000) == 0


def test_pauses_between_probes_grow_with_the_absence() -> None:
    """As long as it is away by then, ten seconds at most."""
    breaker, now, probes = after_misses(OPEN_AFTER), 0, []
    while now < 60_000:
        now += wait_ms(breaker, now)
        probes.append(now)
        breaker = missed(probed(breaker, now), now)
    assert probes[:6] == [1_000, 2_000, 4_000, 8_000, 16_000, 26_000]
    assert probes[-1] - probes[-2] == LONGEST_PROBE_MS


def test_one_probe_is_under_way_at_a_time() -> None:
    breaker = probed(after_misses(OPEN_AFTER), 1_000)
    assert wait_ms(breaker, 1_001) > 0
