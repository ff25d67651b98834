"""Time that tests move by hand, and a file that nobody used before."""

from pathlib import Path

import pytest

from turntake.testing.clock import VirtualClock


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "turntake.db")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()
