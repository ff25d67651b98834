"""Time that tests move by hand, and a store that goes by it."""

import pytest

from turntake.buffer.memory import MemoryStore
from turntake.testing.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock)
