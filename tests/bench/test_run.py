"""A tiny run of ours: two processes on one store, and every message of every burst handed over once."""

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.bursts import flood, steady
from bench.contenders import CONTENDERS, Contender
from bench.peers import CannotRun
from bench.run import measure


async def test_every_message_is_handed_over_once() -> None:
    found = await measure(CONTENDERS["sqlite"], steady(1, 200, 0.5))
    assert (found.messages, found.whole_bursts) == (100, 20)
    assert (found.missing, found.twice, found.split_bursts, found.lost_bursts) == (0, 0, 0, 0)
    assert found.cpu is not None
    assert found.cpu > 0
    assert -1 < found.lateness_p50 < 1_000


async def test_a_slow_contender_ends_at_its_limit() -> None:
    found = await measure(CONTENDERS["sqlite"], flood(1, 10_000, 2, limit_s=0.5))
    assert 0 < found.messages < 100
    assert found.missing == 0


@pytest.mark.parametrize(
    ("client", "worker"),
    [("", "echo no such thing >&2"), ("echo ready; read go; echo no such thing >&2", "echo ready; read never")],
    ids=["a worker that does not start", "a client that breaks off"],
)
async def test_a_client_or_worker_that_fails_is_reported(client: str, worker: str) -> None:
    broken = Contender("broken", "sqlite", lambda: (["sh", "-c", client, "sh"], ["sh", "-c", worker, "sh"]))
    with pytest.raises(CannotRun, match="no such thing"):
        await measure(broken, steady(1, 100, 0.1))


def test_the_command_prints_a_table_and_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bursts = ("--messages", "50", "--people", "5", "--waiting", "20,40", "--steps", "20")
    loads = ("--only", "sqlite", "--loads", "flood,waiting")
    assert main([*loads, *bursts, "--json", str(tmp_path / "found.json")]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("flood  ", "waiting on sqlite", "last/first"))
    data = json.loads((tmp_path / "found.json").read_text())
    assert data["flood"]["sqlite"]["missing"] == 0
    assert data["waiting sqlite"]["sizes"] == [20, 40]
    assert all(value > 0 for value in data["waiting sqlite"]["append, elapsed µs"])


def test_a_contender_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "kafka"])
    assert "there is no kafka; there are redis" in capsys.readouterr().err
