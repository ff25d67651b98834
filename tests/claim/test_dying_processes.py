"""One message kills its process, again and again, and a supervisor restarts it: its neighbours are answered."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.databases import PATIENCE_S, Postgres, Valkey
from harness.dying_worker import end_of, until_ended
from harness.turns import AT_ONCE
from turntake import ConversationKey, TurnTake

HEALTHY = 30
# Processes start six times and more, which takes its time on a machine that has other things to do.
pytestmark = pytest.mark.timeout(180)


class Supervisor:
    """Runs a process, and runs it again whenever it ends."""

    def __init__(self, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "harness.dying_worker", *arguments]
        self._is_stopping = False
        self._process = subprocess.Popen(self._command)
        self._thread = threading.Thread(target=self._restart)
        self._thread.start()

    def _restart(self) -> None:
        while True:
            self._process.wait()
            if self._is_stopping:
                return
            self._process = subprocess.Popen(self._command)

    def stop(self) -> None:
        self._is_stopping = True
        self._process.kill()
        self._thread.join(PATIENCE_S)


@contextmanager
def supervised(url: str, mistake: str, processes: int = 1) -> Iterator[None]:
    supervisors = [Supervisor(url, mistake) for _ in range(processes)]
    try:
        yield
    finally:
        for supervisor in supervisors:
            supervisor.stop()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'turntake.db'}"


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with Valkey(tmp_path / "valkey") as server:
        yield server.url


@pytest.fixture
def postgres_url(tmp_path: Path) -> Iterator[str]:
    with Postgres(tmp_path / "postgres", is_safe=False) as server:
        yield server.url


async def send_all(turns: TurnTake) -> None:
    await turns.receive("poison", conversation="poison", id="m1")
    for number in range(HEALTHY):
        await turns.receive("hello", conversation=f"p{number}", id="m1")


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
async def test_a_message_that_kills_its_process_takes_no_neighbour_along(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """With the rules as they are by default: thirty healthy turns are answered, and one dead letter says why."""
    url: str = request.getfixturevalue(f"{kind}_url")
    async with TurnTake(url, role="accept", rules=AT_ONCE) as turns:
        await send_all(turns)
        with supervised(url, "exit"):
            await until_ended(turns, "poison", *(f"p{number}" for number in range(HEALTHY)))
        ends = [await end_of(turns, f"p{number}") for number in range(HEALTHY)]
        (letter,) = (await turns.store.letters.list(10)).items
    assert ends == ["answered"] * HEALTHY
    assert letter.key == ConversationKey.of("poison")
    assert letter.reason == "stopped its worker 3 times"
    assert "on no other" in letter.error


async def test_a_message_that_holds_up_its_process_takes_no_neighbour_along(sqlite_url: str) -> None:
    """Two processes: while one stands still for longer than a lease, the other takes over all that it held."""
    async with TurnTake(sqlite_url, role="accept", rules=AT_ONCE) as turns:
        await send_all(turns)
        with supervised(sqlite_url, "block", processes=2):
            await until_ended(turns, *(f"p{number}" for number in range(HEALTHY)))
        ends = [await end_of(turns, f"p{number}") for number in range(HEALTHY)]
    assert ends == ["answered"] * HEALTHY
