"""`memory://` keeps the contract. It is the model itself, so the machine here checks the machine."""

from contextlib import ExitStack

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from harness.histories import scaled
from turntake.buffer.memory import MemoryStore
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import StoreContract
from turntake.testing.store_machine import OpenStore, StoreMachine


class TestMemoryStore(StoreContract):
    is_durable = False

    @pytest.fixture
    def open_store(self, clock: VirtualClock) -> OpenStore:
        return lambda: MemoryStore.open("memory://", clock)


class MemoryMachine(StoreMachine):
    is_durable = False

    def opener(self, clock: VirtualClock, resources: ExitStack) -> OpenStore:
        return lambda: MemoryStore(clock)


@pytest.mark.timeout(600 + scaled(50))
def test_memory_answers_like_the_model() -> None:
    """A second model beside the first gives the same answers over random lives."""
    lives = settings(max_examples=scaled(50), stateful_step_count=30, deadline=None)
    run_state_machine_as_test(MemoryMachine, settings=lives)
