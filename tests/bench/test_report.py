"""The table says what was measured, and divides ours by theirs."""

from dataclasses import replace

import pytest

from bench.figures import figures
from bench.report import as_data, number, ratios, table

SENT = [("a", n, 1_000.0 + 100 * n, 1_001.0 + 100 * n) for n in range(5)]
OURS = replace(
    figures(SENT, [("a", [0, 1, 2, 3, 4], 2_404, None)], 1_000),
    accepted_a_second=10_000.0,
    handed_over_a_second=9_000.0,
    lateness_p50=1.0,
    lateness_p99=5.0,
    cpu_client=0.1,
    cpu_worker=0.05,
    cpu_store=0.05,
)
THEIRS = replace(
    OURS, accepted_a_second=5_000.0, handed_over_a_second=4_500.0, lateness_p50=4.0, lateness_p99=50.0, cpu_client=0.3
)


def test_ratios_are_ours_divided_by_theirs() -> None:
    assert ratios("flood", OURS, THEIRS) == {
        "accepted_a_second": 2.0,
        "handed_over_a_second": 2.0,
        "lateness_p50": 0.25,
        "lateness_p99": 0.1,
        "cpu": pytest.approx(0.5),
    }


def test_a_rate_that_was_offered_is_not_compared() -> None:
    assert set(ratios("steady", OURS, THEIRS)) == {"lateness_p50", "lateness_p99", "cpu"}


def test_the_table_has_a_column_each_and_the_ratios() -> None:
    lines = table("flood", {"redis": OURS, "bullmq": THEIRS}).splitlines()
    assert lines[0].split() == ["flood", "redis", "bullmq"]
    assert "accepted /s                         10,000       5,000" in lines
    assert "store commands, idle /s                  -           -" in lines
    start = lines.index("redis / bullmq")
    assert [line.split()[-1] for line in lines[start + 1 :]] == ["2.00", "2.00", "0.25", "0.10", "0.50"]


def test_contenders_on_different_servers_are_not_compared() -> None:
    found = {"postgresql": OURS, "bullmq": THEIRS}
    assert "/ bullmq" not in table("flood", found)
    assert as_data("flood", found)["ratios"] == {}


def test_the_data_holds_every_figure_and_the_ratios() -> None:
    data = as_data("flood", {"redis": OURS, "bullmq": THEIRS})
    assert isinstance(data["redis"], dict)
    assert (data["redis"]["cpu"], data["redis"]["whole_bursts"]) == (pytest.approx(0.2), 1)
    assert data["ratios"] == {"redis/bullmq": ratios("flood", OURS, THEIRS)}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (3, "3"),
        (12_345, "12,345"),
        (12_345.6, "12,346"),
        (12.34, "12.3"),
        (0.1234, "0.123"),
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number(value) == text
