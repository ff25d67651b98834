"""What a message costs the server with many workers: a tiny run."""

from pathlib import Path

import pytest

from bench import workers
from bench.servers import STORES
from bench.workers import Cost, measured


async def test_what_is_counted_is_what_was_answered_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MEETING_MS", 0)
    monkeypatch.setattr(workers, "RUN_UP_MS", 500)
    with STORES["redis"](tmp_path) as server:
        cost = await measured(server, 2, 500, slower=2)
    assert cost.answered > 0
    assert cost.commands > 10 * cost.answered
    assert -1 < cost.late_p50_ms <= cost.late_p99_ms


def test_a_line_says_how_many_times_the_first_it_is() -> None:
    """The worse of both."""
    first = Cost(10, 1.0, 1, 2, 1)
    assert Cost(12, 1.4, 1, 2, 1).line("redis", 40, first).split()[-1] == "1.40"
    assert Cost(16, 1.4, 1, 2, 1).line("redis", 40, first).split()[-1] == "1.60"
