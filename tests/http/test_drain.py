"""Stopping politely, as real processes: a load balancer can notice, nothing is claimed any more, nothing is lost."""

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from harness.serving import PATIENCE_S, QUICK, Served, eventually, first, served
from turntake.errors import TurntakeError
from turntake.operate.client import Client

LONG = ("--http-drain-ms", "600000")
RECORDING = """
import asyncio, json
async def answer(turn):
    await asyncio.sleep(0.03)
    with open("answered", "a") as file:
        line = {"turn": turn.id, "attempt": turn.attempt, "ids": [message.id for message in turn.messages]}
        file.write(json.dumps(line) + "\\n")
    return "noted"
"""
PATIENT_AGENT = """
import asyncio
from pathlib import Path
async def answer(turn):
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "at last"
"""


def message(conversation: str, id: str) -> dict[str, str]:
    return {"conversation": conversation, "id": id, "text": "hello"}


def draining(server: Served) -> Served:
    server.process.send_signal(signal.SIGTERM)
    server.logged("Stopping")
    return server


def test_the_start_says_the_role(tmp_path: Path) -> None:
    for role in ("accept", "work", "all"):
        with served(tmp_path, "--role", role) as server:
            assert server.log[-1]["role"] == role
            assert server.client.get("/readyz") == {"status": "ok", "role": role}


def test_not_ready_at_once_and_still_there(tmp_path: Path) -> None:
    """While the load balancer learns of it, what it still sends is taken. A second signal ends the wait."""
    with served(tmp_path, *LONG) as server:
        client = draining(server).client
        with pytest.raises(TurntakeError, match="about to stop"):
            client.get("/readyz")
        assert client.get("/healthz") == {"status": "ok"}
        assert client.post("/v1/messages", message("ann", "1"))["status"] == "buffered"
        assert server.stop() == 0


def test_the_wait_ends_by_itself(tmp_path: Path) -> None:
    with served(tmp_path, "--http-drain-ms", "50") as server:
        assert server.stop() == 0


def test_without_a_wait_the_port_is_closed_at_once(tmp_path: Path) -> None:
    """Even while an answer is still under way: whoever is refused a connection knows that nothing was accepted."""
    (tmp_path / "patient.py").write_text(PATIENT_AGENT)
    with served(tmp_path, *QUICK, "--agent", "patient:answer") as server:
        with server.client.events() as events:
            server.client.post("/v1/messages", message("ann", "1"))
            first(events, "claimed")
        draining(server)
        with Client(server.url) as another:
            assert any(is_refused(another) for _ in range(1_000))
        assert server.process.poll() is None
        (tmp_path / "go").touch()
        assert server.process.wait(PATIENCE_S) == 0


def is_refused(client: Client) -> bool:
    try:
        client.get("/healthz")
    except TurntakeError as error:
        return str(error).startswith("No server")
    return False


def test_answers_under_way_are_finished(tmp_path: Path) -> None:
    """They begin to finish with the signal, while requests are still served."""
    (tmp_path / "patient.py").write_text(PATIENT_AGENT)
    with served(tmp_path, *QUICK, *LONG, "--agent", "patient:answer") as server:
        with server.client.events() as events:
            server.client.post("/v1/messages", message("ann", "1"))
            turn_id = first(events, "claimed")["turnId"]
        client = draining(server).client
        (tmp_path / "go").touch()
        assert eventually(client, f"/v1/turns/{turn_id}", status="answered")["attempt"] == 1
        assert server.stop() == 0


def test_what_is_not_finished_in_time_is_handed_back_while_requests_are_served(tmp_path: Path) -> None:
    """Another worker need not wait for the load balancer of this one."""
    (tmp_path / "patient.py").write_text(PATIENT_AGENT)
    agent = ("--agent", "patient:answer")
    with served(tmp_path, *QUICK, *LONG, *agent, "--worker-shutdown-ms", "50") as server:
        with server.client.events() as events:
            server.client.post("/v1/messages", message("ann", "1"))
            turn_id = first(events, "claimed")["turnId"]
        client = draining(server).client
        eventually(client, f"/v1/turns/{turn_id}", leaseUntilAt=None)
        (tmp_path / "go").touch()
        with served(tmp_path, *agent, "--role", "work"):
            assert eventually(client, f"/v1/turns/{turn_id}", status="answered")["attempt"] == 2
        assert server.stop() == 0


def test_nothing_is_claimed_any_more(tmp_path: Path) -> None:
    """What still arrives is another worker's to answer."""
    with served(tmp_path, *QUICK, *LONG) as server, served(tmp_path, "--role", "work") as other:
        client = draining(server).client
        with other.client.events() as events:
            sent = {client.post("/v1/messages", message(f"c{n}", "1"))["conversationKey"] for n in range(20)}
            assert {first(events, "claimed")["conversationKey"] for _ in sent} == sent
        assert server.stop() == 0


class Sender(threading.Thread):
    """People behind a load balancer: each message goes to whichever server takes it, again and again until one does."""

    def __init__(self, targets: list[Client]) -> None:
        super().__init__()
        self.targets = targets
        self.acknowledged: list[str] = []
        self.refused = 0
        self.is_done = threading.Event()

    def run(self) -> None:
        for number in count():
            if self.is_done.is_set():
                return
            self.acknowledged.append(self.send(f"c{number % 20}", f"m{number}"))

    def send(self, conversation: str, id: str) -> str:
        for client in self.tries():
            try:
                assert client.post("/v1/messages", message(conversation, id))["status"] in ("buffered", "duplicate")
            except TurntakeError:
                self.refused += 1
            else:
                return id
        raise AssertionError("nobody took it")

    def tries(self) -> Iterator[Client]:
        for _ in range(1_000):
            yield from list(self.targets)

    def go_on(self, more: int) -> None:
        """Returns once so many more messages were acknowledged."""
        wanted = len(self.acknowledged) + more
        while len(self.acknowledged) < wanted:
            assert self.is_alive()
            self.is_done.wait(0.01)


def is_idle(client: Client) -> bool:
    return {found["status"] for found in client.get("/v1/conversations")["conversations"]} == {"idle"}


def test_a_rolling_restart_under_load_loses_nothing(tmp_path: Path) -> None:
    """Accepting and working processes are replaced one by one; every acknowledged message is answered exactly once."""
    (tmp_path / "recording.py").write_text(RECORDING)
    accept = (*QUICK, "--role", "accept")
    work = (*QUICK, "--role", "work", "--agent", "recording:answer", "--worker-concurrency", "5")
    with ExitStack() as stack:
        acceptors = [stack.enter_context(served(tmp_path, *accept)) for _ in range(2)]
        worker = stack.enter_context(served(tmp_path, *work))
        sender = Sender([server.client for server in acceptors])
        sender.start()
        stack.callback(sender.join)
        stack.callback(sender.is_done.set)
        for generation in range(2):
            sender.go_on(100)
            acceptors.append(stack.enter_context(served(tmp_path, *accept)))
            sender.targets.append(acceptors[-1].client)
            assert acceptors[generation].stop() == 0
            sender.go_on(100)
            before, worker = worker, stack.enter_context(served(tmp_path, *work))
            assert before.stop() == 0
        sender.is_done.set()
        sender.join()
        assert any(is_idle(worker.client) for _ in range(5_000))
        assert worker.client.get("/v1/dead-letters")["deadLetters"] == []
    lines = [json.loads(line) for line in (tmp_path / "answered").read_text().splitlines()]
    answered = Counter(id for line in lines for id in line["ids"])
    assert sender.refused > 0
    assert set(answered) == set(sender.acknowledged)
    assert set(answered.values()) == {1}
    assert {line["attempt"] for line in lines} == {1}
