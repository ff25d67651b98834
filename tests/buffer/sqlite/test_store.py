"""The SQLite store passes what every store must."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from harness.histories import scaled
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import (
    StoreContract,
)
from turntake.testing.store_machine import OpenStore, StoreMachine


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def open_store(self, clock: VirtualClock, tmp_path: Path) -> OpenStore:
        return lambda: SqliteStore(str(tmp_path / "turntake.db"), clock)


class SqliteMachine(StoreMachine):
    def opener(self, clock: VirtualClock, resources: ExitStack) -> OpenStore:
        folder = resources.enter_context(tempfile.TemporaryDirectory())
        return lambda: SqliteStore(f"{folder}/turntake.db", clock)


@pytest.mark.timeout(600 + scaled(300))
def test_sqlite_answers_like_the_model() -> None:
    """Over random lives, through crashes and reopenings, every answer is the model's."""
    lives = settings(max_examples=scaled(300), stateful_step_count=40, deadline=None)
    run_state_machine_as_test(SqliteMachine, settings=lives)
