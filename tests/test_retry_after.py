"""How long others ask us to wait, and how much of their words we keep."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.retry_after import EXCERPT, LONGEST_MS, SHORTEST_MS, excerpt, retry_after_ms

NONSENSE: tuple[Any, ...] = (None, "", "soon", "-3", -3, "²", "٣", "1e9", True, float("nan"), [], {})
NOW = 1_794_735_000_250  # 2026-11-15T09:30:00.250Z
DATE = "Sun, 15 Nov 2026 09:30:10 GMT"


@pytest.mark.parametrize(
    ("value", "wait_ms"),
    [
        ("120", 120_000),
        (" 7 ", 7_000),
        ("1.5", 1_500),
        (2, 2_000),
        (0.75, 750),
        ("0", SHORTEST_MS),
        (0, SHORTEST_MS),
        ("86400", LONGEST_MS),
        (10**400, LONGEST_MS),
        (float("inf"), LONGEST_MS),
        (DATE, 9_750),
        ("Sun, 15 Nov 2026 09:29:00 GMT", SHORTEST_MS),
        ("Sun, 15 Nov 9999 09:29:00 GMT", LONGEST_MS),
        ("Mon, 01 Jan 0001 00:00:00 +2359", SHORTEST_MS),
        *((value, 5_000) for value in NONSENSE),
        ("9" * 5_000, 5_000),
    ],
)
def test_the_wait_that_is_asked_for(value: object, wait_ms: int) -> None:
    """Seconds, as text or as a number, or a date; nonsense asks for nothing, and nobody waits more than an hour."""
    assert retry_after_ms(value, 5_000, NOW) == wait_ms


def test_a_date_is_ignored_without_the_current_time() -> None:
    assert retry_after_ms(DATE, 5_000) == 5_000


@given(st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.binary()))
def test_whatever_is_asked_for_gives_a_wait(value: Any) -> None:
    """Nothing raises, and every wait is between the shortest and the longest, or the default."""
    wait_ms = retry_after_ms(value, 5_000, NOW)
    assert SHORTEST_MS <= wait_ms <= LONGEST_MS


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("two\n  lines", "two lines"),
        (b"bytes \xff", "bytes \ufffd"),
        ("x" * 1_000, "x" * EXCERPT),
        ("é".encode() * 1_000, "é" * EXCERPT),
        (None, ""),
        (17, ""),
    ],
)
def test_an_excerpt_is_short_and_on_one_line(words: object, kept: str) -> None:
    assert excerpt(words) == kept
