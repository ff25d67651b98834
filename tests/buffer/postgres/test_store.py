"""The PostgreSQL store passes what every store must."""

from contextlib import ExitStack

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from harness.databases import Postgres
from harness.histories import scaled
from harness.postgres_store import empty
from turntake.buffer.postgres.backend import PostgresStore
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import StoreContract
from turntake.testing.store_machine import OpenStore, StoreMachine


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def open_store(self, clock: VirtualClock, url: str) -> OpenStore:
        return lambda: PostgresStore.open(url, clock)


@pytest.mark.timeout(600 + scaled(600))
def test_postgres_answers_like_the_model(server: Postgres) -> None:
    """Over random lives, through crashes and reopenings, every answer is the model's."""

    class PostgresMachine(StoreMachine):
        def opener(self, clock: VirtualClock, resources: ExitStack) -> OpenStore:
            empty(server.url)
            return lambda: PostgresStore.open(server.url, clock)

    lives = settings(max_examples=scaled(300), stateful_step_count=40, deadline=None)
    run_state_machine_as_test(PostgresMachine, settings=lives)
