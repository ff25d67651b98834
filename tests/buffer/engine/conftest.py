"""A write queue on a backend in memory, for each test anew."""

import pytest

from harness.fake_backend import FakeBackend, queue_on
from turntake.buffer.engine.write_queue import WriteQueue
from turntake.testing.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def queue(backend: FakeBackend, clock: VirtualClock) -> WriteQueue:
    return queue_on(backend, clock)
