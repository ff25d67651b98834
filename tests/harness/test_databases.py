"""The servers themselves: they answer, come back with what they held, and leave nobody behind."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest
from redis import RedisError
from redis.cluster import RedisCluster

from harness.databases import ALWAYS, Cluster, Postgres, Sentinel, Server, Valkey, _is_alive, until

ORPHAN = """
import sys
from pathlib import Path
from harness.databases import Postgres, Valkey
server = {kind}(Path(sys.argv[1]))
server.start()
print(server._process.pid, flush=True)
sys.stdin.read()
"""


def rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def test_valkey_survives_a_kill(tmp_path: Path) -> None:
    with Valkey(tmp_path, ALWAYS) as server:
        server.ask("SET", "name", "ann")
        server.kill()
        assert not server.is_running
        with pytest.raises(RedisError):
            server.ask("PING")
        server.start()
        assert server.ask("GET", "name") == b"ann"
        server.stop()
        server.start()
        assert server.ask("GET", "name") == b"ann"
    assert not server.is_running


def test_valkey_forgets_if_told_to(tmp_path: Path) -> None:
    with Valkey(tmp_path, "maxmemory 32mb", is_safe=False) as server:
        assert server.ask("CONFIG", "GET", "maxmemory")[b"maxmemory"] == b"33554432"
        server.ask("SET", "name", "ann")
        server.kill()
        server.start()
        assert server.ask("GET", "name") is None


def test_a_paused_valkey_answers_after_it_resumes(tmp_path: Path) -> None:
    with Valkey(tmp_path) as server, server.client() as client:
        server.pause()
        assert {process.status() for process in server._family()} == {psutil.STATUS_STOPPED}
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(client.incr("count")))
        asking.start()
        server.resume()
        asking.join(20)
        assert answers == [1]
        server.pause()
        process = server._process
    assert process is not None
    assert process.returncode == 0, "resumed before it was stopped, or it would have had to be killed"


def test_a_failed_start_shows_the_log(tmp_path: Path) -> None:
    """And may be tried again."""
    server = Valkey(tmp_path, "no-such-option yes")
    with pytest.raises(RuntimeError, match="ended while it started") as failure:
        server.start()
    assert "no-such-option" in failure.value.__notes__[0]
    assert not server.is_running
    conf = tmp_path / "valkey.conf"
    conf.write_text(conf.read_text().replace("no-such-option yes", ""))
    with server:
        assert server.ask("PING")


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_cluster_has_all_slots(tmp_path: Path, nodes: int) -> None:
    with Cluster(tmp_path, nodes, ALWAYS) as cluster:
        assert len(cluster.nodes) == nodes
        ranges = cluster.nodes[-1].ask("CLUSTER", "SLOTS")
        assert len(ranges) == nodes
        with RedisCluster.from_url(cluster.url.replace("redis+cluster", "redis")) as client:
            for number in range(30):
                client.set(f"key{number}", number)
            cluster.nodes[0].kill()
            cluster.nodes[0].start()
            cluster.wait()
            assert [client.get(f"key{number}") for number in range(30)] == [b"%d" % number for number in range(30)]
        held = [node.ask("DBSIZE") for node in cluster.nodes]
        assert sum(held) == 30
        assert all(held)


def test_a_cluster_comes_back(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster:
        slots = cluster.nodes[0].ask("CLUSTER", "SLOTS")
    with cluster:
        assert sorted(cluster.nodes[0].ask("CLUSTER", "SLOTS")) == sorted(slots)


def test_sentinels_name_a_new_primary(tmp_path: Path) -> None:
    with Sentinel(tmp_path) as watched:
        old, new = watched.primary, watched.replica
        old.ask("SET", "name", "ann")
        assert old.ask("WAIT", 1, 5_000) == 1
        assert watched.primary_port() == old.port
        old.kill()
        until(lambda: watched.primary_port() == new.port)
        until(lambda: new.ask("ROLE")[0] == b"master")
        assert new.ask("GET", "name") == b"ann"


def test_postgres_survives_a_kill(tmp_path: Path) -> None:
    with Postgres(tmp_path) as server:
        assert rows(server.url, "SHOW fsync") == [("on",)]
        url = server.database("people")
        rows(url, "CREATE TABLE person (name text)")
        rows(url, "INSERT INTO person VALUES ('ann')")
        family = server._family()
        assert len(family) > 3
        server.pause()
        until(lambda: all(process.status() == psutil.STATUS_STOPPED for process in family if _is_alive(process)))
        server.resume()
        assert rows(url, "SELECT name FROM person") == [("ann",)]
        server.kill()
        assert not any(map(_is_alive, family))
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        assert rows(url, "SELECT name FROM person") == [("ann",)]
        server.stop()
        server.start()
        assert rows(url, "SELECT name FROM person") == [("ann",)]


def test_postgres_makes_fresh_databases(tmp_path: Path) -> None:
    with Postgres(tmp_path, is_safe=False) as server:
        assert rows(server.url, "SHOW fsync") == [("off",)]
        rows(server.database("one"), "CREATE TABLE person (name text)")
        other = server.database("two")
        rows(other, "CREATE TABLE person (name text)")
        with closing(psycopg.connect(server.database("one"))) as held:
            held.execute("SELECT 1")
            tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'person'"
            assert rows(server.database("one"), tables) == [(0,)]
        assert rows(other, tables) == [(1,)]
        server.kill()
        server.start()
        data = server._data
    assert data.is_relative_to(tmp_path) or not data.exists()


@pytest.mark.parametrize("kind", [Valkey, Postgres])
def test_a_server_ends_with_whoever_started_it(kind: type[Server]) -> None:
    """In a folder that everybody can reach, so that nothing is left behind elsewhere."""
    with tempfile.TemporaryDirectory(prefix="turntake-orphan-") as folder:
        Path(folder).chmod(0o755)
        command = (sys.executable, "-c", ORPHAN.format(kind=kind.__name__), folder)
        with subprocess.Popen(
            command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as parent:
            assert parent.stdout is not None
            server = psutil.Process(int(parent.stdout.readline()))
            assert server.is_running()
            os.kill(parent.pid, signal.SIGKILL)
        until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, 10)


def test_a_server_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    server = Valkey(tmp_path)
    starting = threading.Thread(target=server.start)
    starting.start()
    starting.join()
    try:
        assert server.ask("PING")
    finally:
        server.stop()
