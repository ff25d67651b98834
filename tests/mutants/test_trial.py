"""A small project with one test: a bug that it sees is killed, one that it does not see survives, and the copy is whole
afterwards."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from mutants import stages
from mutants.__main__ import drawn, mutants_in, table
from mutants.mutant import Mutant
from mutants.stages import stages_for
from mutants.trial import LEAST_PATIENCE_S, NO_END, PATIENCE, Trial, Verdict

SOURCE = """
def longest(a, b):
    return max(a, b)

def least_pause(ms):
    return ms > 500
"""
TEST = """
from turntake.rules import longest, least_pause

def test_the_longest():
    assert longest(1, 2) == 2

def test_the_pause():
    assert least_pause(501)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    files = {"src/turntake/__init__.py": "", "src/turntake/rules/__init__.py": SOURCE, "tests/test_a.py": TEST}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    subprocess.run(("git", "init", "-q", folder), check=True)
    monkeypatch.setitem(stages.CHAINS, "src/turntake/rules", (("tests/test_*.py",),))
    return folder


def test_a_bug_is_killed_by_the_test_that_sees_it(project: Path, tmp_path: Path) -> None:
    trial = Trial(project, tmp_path / "copy")
    bugs = {mutant.before: mutant for mutant in mutants_in(project, "src/turntake/rules")}
    assert trial.judge(bugs["max"]).killed_by == "tests/test_a.py::test_the_longest"
    assert trial.judge(bugs[">"]).killed_by == ""
    assert (tmp_path / "copy/src/turntake/rules/__init__.py").read_text() == SOURCE
    assert (project / "src/turntake/rules/__init__.py").read_text() == SOURCE


def test_a_test_that_fails_without_a_bug_is_left_out(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would call every bug noticed."""
    with (project / "tests/test_a.py").open("a") as file:
        file.write("\n\ndef test_the_weather():\n    assert False\n")
    trial = Trial(project, tmp_path / "copy")
    bugs = {mutant.before: mutant for mutant in mutants_in(project, "src/turntake/rules")}
    assert trial.judge(bugs[">"]).killed_by == ""
    assert "tests/test_a.py::test_the_weather" in capsys.readouterr().out


def test_a_test_that_fails_with_and_without_the_bug_kills_nothing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine one may fail now and then, whatever is planted. It is asked no more."""
    trial = Trial(project, tmp_path / "copy")
    bug = mutants_in(project, "src/turntake/rules")[0]
    weather, pause = "tests/test_a.py::test_the_weather", "tests/test_a.py::test_the_pause"
    failures = iter([[], [f"{weather}[rain]"], [weather], [], [pause], []])
    asked: list[list[str]] = []

    def run(trial: Trial, paths: list[str], limit_s: float | None, *flags: str) -> list[str]:
        asked.append(paths)
        return next(failures)

    monkeypatch.setattr(Trial, "_run", run)
    assert trial.judge(bug).killed_by == ""
    assert asked[2] == [weather]
    assert trial._left_out == [weather]
    assert trial.judge(bug).killed_by == pause


def test_a_bug_that_makes_tests_endless_is_told_from_a_machine_that_is_slow(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever takes as long without the bug has not noticed it, and is given more time."""
    trial = Trial(project, tmp_path / "copy")
    bug = mutants_in(project, "src/turntake/rules")[0]
    now_s, limits = 0, list[float]()

    def run(trial: Trial, paths: list[str], limit_s: float | None, *flags: str) -> list[str]:
        """The machine was quiet at first; then it takes 40 s, with the bug and without."""
        nonlocal now_s
        if limit_s is None:
            now_s += 40 if limits else 1
            return []
        limits.append(limit_s)
        return [NO_END] if limit_s < PATIENCE * 40 else []

    monkeypatch.setattr(Trial, "_run", run)
    monkeypatch.setattr("mutants.trial.time", SimpleNamespace(monotonic=lambda: now_s))
    assert trial.judge(bug).killed_by == ""
    assert limits == [LEAST_PATIENCE_S, PATIENCE * 40]
    monkeypatch.setattr(Trial, "_run", lambda trial, paths, limit_s, *flags: [NO_END] if limit_s else [])
    assert trial.judge(bug).killed_by == NO_END


def test_tests_that_cannot_be_run_judge_nothing(project: Path, tmp_path: Path) -> None:
    (project / "tests/test_a.py").write_text("import nothing_of_that_name\n")
    trial = Trial(project, tmp_path / "copy")
    with pytest.raises(SystemExit, match="fail without any bug"):
        trial.judge(mutants_in(project, "src/turntake/rules")[0])


def test_the_same_seed_draws_the_same(project: Path) -> None:
    mutants = mutants_in(project, "src/turntake/rules")
    assert drawn(mutants, 3, 7) == drawn(mutants, 3, 7)
    assert drawn(mutants, 99, 7) == mutants


def test_there_are_more_than_150_in_the_core() -> None:
    root = Path(__file__).parents[2]
    for folder in stages.FOLDERS:
        mutants = mutants_in(root, folder)
        assert len(mutants) > 150, folder
        assert all(stages_for(mutant.path) for mutant in mutants)


def test_every_stage_names_tests_that_exist() -> None:
    root = Path(__file__).parents[2]
    named = {pattern for chain in stages.CHAINS.values() for stage in chain for pattern in stage}
    assert [pattern for pattern in named if not list(root.glob(pattern))] == []


def test_the_table_names_survivors() -> None:
    one, two = (Mutant("src/turntake/rules/a.py", 0, 1, "<", "<=", line) for line in (1, 2))
    lines = table([Verdict(one, "tests/a.py::test_b", 1.0), Verdict(two, "", 2.0)])
    assert "src/turntake/rules                        2        1        1" in lines
    assert lines[-2:] == ["Survivors:", "  src/turntake/rules/a.py:2  < -> <="]
