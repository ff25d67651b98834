"""`turntake bench`: every figure is measured and printed; nothing is said about how large it is."""

import json
import subprocess
import sys

import pytest

from harness.servers import serving
from turntake import TurnTake
from turntake.deliver.echo import echo

BRIEFLY = ("--seconds", "0.3", "--rate", "50", "--json")


def measured(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "turntake", "bench", *BRIEFLY, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return {figure["name"].strip(): figure["value"] for figure in json.loads(done.stdout)}


@pytest.mark.timeout(120)
def test_it_measures_beside_its_baselines() -> None:
    figures = measured("--waiting", "20,40")
    assert all(value >= 0 for value in figures.values())
    for name in (
        "bare server, one message a request",
        "storeless server, one message a request",
        "raw SQLite, 100 a commit",
        "idle: resident",
        "one message a request",
        "100 messages a request",
        "acknowledged within, p99",
        "lateness (claim minus due), p99",
        "CPU for 1,000 messages, accepted and answered",
        "with 40 conversations waiting",
    ):
        assert name in figures


@pytest.mark.timeout(120)
def test_it_measures_a_server_that_runs() -> None:
    with serving(TurnTake("memory://", agent=echo)) as server:
        figures = measured("--url", server.url)
    assert figures["one message a request"] > 0
    assert "idle: resident" not in figures


def test_a_url_that_cannot_be_measured_is_refused() -> None:
    command = [sys.executable, "-m", "turntake", "bench", "--url", "https://example.com"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, "http://HOST:PORT" in done.stderr) == (2, True)
