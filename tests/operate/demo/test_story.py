"""The demo: a crowd over HTTP, bounded, readable with and without a terminal."""

import os
import pty
import re
import subprocess
from pathlib import Path
from random import Random

import pytest

from harness.serving import PATIENCE_S, command, environment, run, served
from turntake.operate.demo.crowd import MANNERS, name_of, thought
from turntake.operate.demo.story import Tally, hastened
from turntake.rules.rules import Rules

SHORT = ("--people", "4", "--seconds", "1", "--speed", "20")


def test_embedded(tmp_path: Path) -> None:
    """It needs nothing, leaves nothing, and says what was saved and why."""
    said = run("demo", *SHORT, folder=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert "\x1b" not in said.stdout
    counts = re.search(r"(\d+) messages? became (\d+) turns?\.\n(\d+) model calls? saved", said.stdout)
    assert counts is not None
    messages, turns, saved = map(int, counts.groups())
    assert messages - turns == saved
    assert "Why, for example: " in said.stdout
    assert "handed to the agent, because of: " in said.stdout
    assert list(tmp_path.iterdir()) == []


def test_against_a_running_server(tmp_path: Path) -> None:
    with served(tmp_path, "--rules-silence-ms", "50", "--rules-typing-inference-ms", "100") as server:
        said = run("demo", *SHORT, "--url", server.url, folder=tmp_path)
        assert said.returncode == 0
        assert "-> 1 turn" in said.stdout


def test_without_a_server(tmp_path: Path) -> None:
    said = run("demo", "--url", "http://127.0.0.1:1", folder=tmp_path)
    assert said.returncode == 1
    assert said.stderr == "turntake: No server at http://127.0.0.1:1: start one with `turntake serve`.\n"


def test_live_view(tmp_path: Path) -> None:
    """At a terminal the crowd is redrawn in place."""
    ours, theirs = pty.openpty()
    env = environment({"COLUMNS": "100", "LINES": "30", "TERM": "xterm"})
    with subprocess.Popen(command("demo", *SHORT), cwd=tmp_path, env=env, stdout=theirs) as process:
        os.close(theirs)
        seen = read_all(ours)
        assert process.wait(PATIENCE_S) == 0
    assert "\x1b[5A" in seen
    assert "Mia      fast typist" in seen
    assert "became" in seen


def read_all(terminal: int) -> str:
    """Until the other side closes, which Linux reports as an error."""
    chunks = []
    with os.fdopen(terminal, "rb", buffering=0) as stream:
        try:
            while chunk := stream.read(65_536):
                chunks.append(chunk)
        except OSError:
            pass
    return b"".join(chunks).decode(errors="replace")


@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.name)
def test_thoughts_start_at_once_and_go_on_with_pauses(manner: object) -> None:
    (found,) = [m for m in MANNERS if m is manner]
    fragments = thought(found, Random(1))
    assert fragments[0].pause_ms == 0
    low, high = found.pause_ms
    assert all(low <= fragment.pause_ms <= high for fragment in fragments[1:])


def test_names_do_not_run_out() -> None:
    assert len({name_of(number) for number in range(500)}) == 500


def test_hastening_shortens_times_and_leaves_counts() -> None:
    assert hastened(Rules(), 2).silence_ms == 500
    assert hastened(Rules(), 2).max_messages == Rules().max_messages


def test_a_tally_of_nothing_divides_by_nothing() -> None:
    assert (Tally().saved, Tally().average_added_ms) == (0, 0.0)
