"""A private copy of the project, in which one bug at a time is planted and the tests are run.

The copy has its own `src`, which comes before the installed one; the environment with its packages is shared.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from mutants.mutant import Mutant
from mutants.stages import Stage, stages_for

# A bug may make tests hang: one that takes this many times as long as the sound code is taken for noticed.
PATIENCE = 4
LEAST_PATIENCE_S = 60
# Whoever works on this machine meanwhile comes first.
NICENESS = 15
# Of each property test, a fraction of the usual: a bug that they can see at all is seen in the first few.
HISTORIES = "50"
# In a fixed order: chance would make one and the same bug survive and die.
FLAGS = ("-q", "--no-header", "--tb=no", "-p", "no:randomly", "-p", "no:cacheprovider")
# The nearest tests are few; what they do not see goes to many.
WIDE = ("-n", "2", "--dist", "loadscope")
MOST_LEFT_OUT = 5
NO_END = "no end"


class Verdict(NamedTuple):
    """`killed_by` is the test that noticed the bug, or another word for how; empty if it survived."""

    mutant: Mutant
    killed_by: str
    seconds: float


class Trial:
    """Runs the tests of one mutant after the other; `folder` is the copy. Of each chain, `most` stages are run."""

    def __init__(self, project: Path, folder: Path, most: int | None = None) -> None:
        self._folder = folder
        self._most = most
        self._usual_s: dict[Stage, float] = {}
        self._left_out: list[str] = []
        for name in _files(project):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(project / name, target)
        source = folder / "src"
        ours = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "TURNTAKE_TEST_HISTORIES": HISTORIES}
        self._environment = {**os.environ, **ours}
        self._check_that_the_copy_is_used(source)

    def judge(self, mutant: Mutant) -> Verdict:
        """Runs the tests from near to far until one notices the bug."""
        began = time.monotonic()
        killed_by = ""
        for number, stage in enumerate(stages_for(mutant.path)[: self._most]):
            killed_by = self._noticed_by(mutant, stage, WIDE if number else ())
            if killed_by:
                break
        return Verdict(mutant, killed_by, time.monotonic() - began)

    def _noticed_by(self, mutant: Mutant, stage: Stage, flags: tuple[str, ...]) -> str:
        """What fails with the bug and not without it: on a busy machine tests fail, or hardly end, by themselves."""
        self._learn(stage, flags)
        while True:
            limit_s = max(LEAST_PATIENCE_S, PATIENCE * self._usual_s[stage])
            failed = self._run_with(mutant, stage, limit_s, flags)
            if not failed or self._is_because_of_the_bug(failed, stage, limit_s, flags):
                return failed

    def _run_with(self, mutant: Mutant, stage: Stage, limit_s: float, flags: tuple[str, ...]) -> str:
        """Plants the bug, runs the tests until one fails, and takes the bug out again."""
        path = self._folder / mutant.path
        sound = path.read_bytes()
        path.write_bytes(mutant.applied(sound))
        try:
            failed = self._run(self._paths(stage), limit_s, "-x", *flags)
        finally:
            path.write_bytes(sound)
        return failed[0] if failed else ""

    def _is_because_of_the_bug(self, failed: str, stage: Stage, limit_s: float, flags: tuple[str, ...]) -> bool:
        """Asks the sound code, at once, while the machine is as busy as it was."""
        if failed == NO_END:
            del self._usual_s[stage]
            self._learn(stage, flags)
            return 2 * self._usual_s[stage] <= limit_s
        name = failed.partition("[")[0]
        if "::" not in name or not self._run([name], None):
            return True
        self._leave_out([name])
        return False

    def _learn(self, stage: Stage, flags: tuple[str, ...]) -> None:
        """How long the stage takes without a bug. Tests that fail then, on a busy machine, are asked nothing."""
        if stage not in self._usual_s:
            began = time.monotonic()
            failed = self._run(self._paths(stage), None, *flags)
            if len(failed) > MOST_LEFT_OUT or not all("::" in name for name in failed):
                raise SystemExit(f"These tests fail without any bug, so nothing can be learned: {failed}")
            self._leave_out(failed)
            self._usual_s[stage] = time.monotonic() - began

    def _leave_out(self, names: list[str]) -> None:
        for name in names:
            print(f"  left out, since it fails without any bug: {name}", flush=True)
        self._left_out += names

    def _paths(self, stage: Stage) -> list[str]:
        return [str(path) for pattern in stage for path in sorted(self._folder.glob(pattern))]

    def _run(self, paths: list[str], limit_s: float | None, *flags: str) -> list[str]:
        """What failed; words for it where no test has a name."""
        left_out = [f"--deselect={name}" for name in self._left_out]
        process = subprocess.Popen(
            (sys.executable, "-m", "pytest", *FLAGS, *flags, *left_out, *paths),
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: os.nice(NICENESS),
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return [NO_END]
        return _failures(process.returncode, said)

    def _check_that_the_copy_is_used(self, source: Path) -> None:
        asked = (sys.executable, "-c", "import turntake; print(turntake.__file__)")
        said = subprocess.run(
            asked, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=True
        )
        if not Path(said.stdout.strip()).is_relative_to(source):
            raise SystemExit(f"The tests would run {said.stdout.strip()} and not the copy in {source}.")


def _failures(code: int, said: str) -> list[str]:
    """By pytest's exit code: 0 and 1 are those of tests that ran, 2 to 4 mean that a file could not be imported."""
    if code == 0:
        return []
    if code == 1:
        named = [line.split()[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return named or ["a test failed"]
    if code in (2, 3, 4):
        return ["cannot be imported"]
    raise SystemExit(f"pytest could not be run:\n{said[-2000:]}")


def _files(project: Path) -> list[str]:
    """What is in the project, whether committed or not, without what is ignored."""
    listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    names = subprocess.run(listed, cwd=project, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in names if name and (project / name).is_file()]
