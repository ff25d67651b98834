"""A primary and its replica change places, as planned and not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.databases import until
from harness.pair import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path, is_safe=False) as pair:
        yield pair


def test_as_planned_nothing_is_lost(pair: Pair) -> None:
    old = pair.primary
    old.ask("SET", "a", 1)
    pair.hand_over()
    assert pair.primary is not old
    assert pair.primary.ask("GET", "a") == b"1"
    pair.primary.ask("SET", "a", 2)
    until(lambda: old.ask("GET", "a") == b"2")


def test_a_replica_that_was_cut_off_takes_over_without_the_latest(pair: Pair) -> None:
    pair.primary.ask("SET", "a", 1)
    pair.primary.ask("WAIT", 1, 5_000)
    pair.cut_off()
    pair.primary.ask("SET", "a", 2)
    pair.primary.kill()
    pair.replica.resume()
    pair.promote()
    assert pair.primary.ask("GET", "a") == b"1"
    pair.follow()
    assert pair.replica.ask("GET", "a") == b"1"
    pair.replica.kill()
    pair.replica.start()
    pair.wait()
    assert pair.replica.ask("ROLE")[0] == b"slave", "it keeps its role when it is started again"
