"""The PostgreSQL store behind PgBouncer in transaction mode, where the next statement may meet another session."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from harness.databases import HOST, Postgres, free_port, until
from harness.postgres_store import empty
from turntake.buffer.postgres.backend import PostgresStore
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import StoreContract
from turntake.testing.store_machine import OpenStore

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed (apt install pgbouncer)")

CONFIGURATION = """
[databases]
* = host={host} port={server_port} user=postgres
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
ignore_startup_parameters = extra_float_digits
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("postgres"), is_safe=False) as server:
        yield server


@pytest.fixture(scope="module")
def pooled_url(server: Postgres) -> Iterator[str]:
    """It does not run as root, so then as nobody."""
    port, user = free_port(), "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "pgbouncer.ini"
        configuration.write_text(CONFIGURATION.format(host=HOST, server_port=server.port, port=port))
        Path(folder).chmod(0o755)
        log = (Path(folder) / "log").open("wb")
        process = subprocess.Popen([str(PGBOUNCER), str(configuration)], user=user, stdout=log, stderr=log)
        try:
            url = f"postgresql://postgres@{HOST}:{port}/postgres"
            until(lambda: answers(url))
            yield url
        finally:
            process.kill()
            process.wait()
            log.close()


def answers(url: str) -> bool:
    with psycopg.connect(url, connect_timeout=2):
        return True


class TestPostgresBehindPgBouncer(StoreContract):
    @pytest.fixture
    def open_store(self, clock: VirtualClock, server: Postgres, pooled_url: str) -> OpenStore:
        empty(server.url)
        return lambda: PostgresStore.open(pooled_url, clock)
