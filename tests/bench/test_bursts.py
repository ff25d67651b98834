"""Every contender gets the same load, run after run."""

from itertools import pairwise
from pathlib import Path

from bench.bursts import BURST, PAUSE_MS, Plan, flood, steady


def test_the_same_seed_makes_the_same_bursts() -> None:
    assert steady(7, 100, 2) == steady(7, 100, 2)
    assert flood(7, 100, 5, 1) == flood(7, 100, 5, 1)
    assert steady(7, 100, 2) != steady(8, 100, 2)
    assert flood(7, 100, 5, 1) != flood(8, 100, 5, 1)


def test_a_burst_is_five_messages_50_to_200_ms_apart() -> None:
    for burst in (*steady(1, 900, 2).bursts, *flood(1, 2_000, 10, 1).bursts):
        assert (len(burst.offsets_ms), burst.offsets_ms[0]) == (BURST, 0)
        assert all(PAUSE_MS[0] <= after - before <= PAUSE_MS[1] for before, after in pairwise(burst.offsets_ms))


def test_a_steady_load_comes_at_its_rate() -> None:
    starts = [burst.start_ms for burst in steady(1, 900, 10).bursts]
    assert len(starts) * BURST == 900 * 10
    assert starts == sorted(starts)
    assert [sum(second <= at / 1000 < second + 1 for at in starts) for second in range(10)] == [180] * 10


def test_a_flood_has_its_messages_and_its_people() -> None:
    plan = flood(1, 1_000, 20, 30)
    assert (len(plan.bursts) * BURST, plan.people, plan.limit_ms) == (1_000, 20, 30_000)
    assert len({burst.conversation for burst in plan.bursts}) == len(plan.bursts)
    assert len({burst.start_ms for burst in plan.bursts[:20]}) > 10
    assert {burst.start_ms for burst in plan.bursts[20:]} == {0}


def test_a_plan_is_read_from_its_file_as_it_was_written(tmp_path: Path) -> None:
    for plan in (steady(1, 100, 1), flood(1, 100, 3, 1)):
        plan.write(tmp_path / "plan.json")
        assert Plan.read(tmp_path / "plan.json") == plan
