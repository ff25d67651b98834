"""Commands and options look at their folder, the environment and the path of modules; here at none of ours."""

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in [name for name in os.environ if name.startswith("TURNTAKE_")]:
        monkeypatch.delenv(name)
