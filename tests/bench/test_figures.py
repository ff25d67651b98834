"""The judge of a run: nothing that was lost, split or handed over twice goes unseen."""

from dataclasses import replace

import pytest

from bench.bursts import BURST
from bench.figures import Handed, Sent, figures, quantile

WHOLE = list(range(BURST))


def sent(*conversations: str, every_ms: float = 100) -> list[Sent]:
    """Answered after 2 ms, one message every `every_ms` from 1,000 on."""
    return [(name, n, 1_000 + n * every_ms, 1_002 + n * every_ms) for name in conversations for n in range(BURST)]


def test_the_figures_of_a_burst_that_became_one_turn() -> None:
    found = figures(sent("a"), [("a", WHOLE, 2_405, 2_401)], 1_000)
    assert (found.messages, found.missing, found.twice) == (5, 0, 0)
    assert (found.whole_bursts, found.split_bursts, found.lost_bursts) == (1, 0, 0)
    assert (found.lateness_p50, found.waited_p99, found.answered_p99) == (4, 5, 2)
    assert found.accepted_a_second == pytest.approx(1000 * 5 / 402)
    assert found.handed_over_a_second == pytest.approx(1000 * 5 / 405)


def test_without_a_due_time_lateness_counts_from_the_last_message_and_the_silence() -> None:
    found = figures(sent("a"), [("a", [4], 2_430, None)], 1_000)
    assert (found.lateness_p50, found.waited_p99) == (30, 30)


@pytest.mark.parametrize(
    ("handed", "missing", "twice", "whole", "split", "lost"),
    [
        ([("a", [4], 2_400, None)], 4, 0, 0, 0, 0),
        ([("a", [0, 1], 2_100, None), ("a", [2, 3, 4], 2_400, None)], 0, 0, 0, 1, 0),
        ([("a", WHOLE, 2_400, None), ("a", WHOLE, 2_900, None)], 0, 5, 0, 1, 0),
        ([("a", [0, 1, 2, 3], 2_400, None)], 1, 0, 0, 0, 1),
        ([("a", [1, 0, 2, 3, 4], 2_400, None)], 0, 0, 0, 0, 0),
        ([], 5, 0, 0, 0, 1),
    ],
    ids=["only the last", "in two parts", "twice", "without the last", "out of order", "never"],
)
def test_what_went_wrong_is_counted(
    handed: list[Handed], missing: int, twice: int, whole: int, split: int, lost: int
) -> None:
    found = figures(sent("a"), handed, 1_000)
    assert (found.missing, found.twice) == (missing, twice)
    assert (found.whole_bursts, found.split_bursts, found.lost_bursts) == (whole, split, lost)


def test_cpu_is_the_sum_of_all_processes() -> None:
    found = figures(sent("a"), [("a", WHOLE, 2_405, None)], 1_000)
    assert found.cpu is None
    assert replace(found, cpu_client=0.1, cpu_worker=0.2, cpu_store=0.4).cpu == pytest.approx(0.7)


def test_quantiles() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([3.0], 0.99)) == (51, 100, 3)
