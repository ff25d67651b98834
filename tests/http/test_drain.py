"""Stopping politely, as real processes: a load balancer can notice, nothing is claimed any more, nothing is lost."""

import json
import signal
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import pytest

from harness.gate import GATE, Gate, closed_gate
from harness.sender import Sender
from harness.serving import PATIENCE_S, QUICK, Served, eventually, first, served
from turntake.errors import TurntakeError
from turntake.operate.client import Client

LONG = ("--http-drain-ms", "600000")
RECORDING = f"""{GATE}
import json

async def answer(turn):
    await gate()
    with open("answered", "a") as file:
        ids = [message.id for message in turn.messages]
        file.write(json.dumps([os.environ["GATE_PORT"], turn.attempt, ids]) + "\\n")
    return "noted"
"""
PATIENT_AGENT = f"""{GATE}
async def answer(turn):
    await gate()
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
    with closed_gate() as gate, served(tmp_path, *QUICK, "--agent", "patient:answer", env=gate.env) as server:
        with server.client.events() as events:
            server.client.post("/v1/messages", message("ann", "1"))
            first(events, "claimed")
        draining(server)
        with Client(server.url) as another:
            assert any(is_refused(another) for _ in range(1_000))
        assert server.process.poll() is None
        gate.open()
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
    with closed_gate() as gate, served(tmp_path, *QUICK, *LONG, "--agent", "patient:answer", env=gate.env) as server:
        with server.client.events() as events:
            server.client.post("/v1/messages", message("ann", "1"))
            turn_id = first(events, "claimed")["turnId"]
        client = draining(server).client
        gate.open()
        assert eventually(client, f"/v1/turns/{turn_id}", status="answered")["attempt"] == 1
        assert server.stop() == 0


def test_what_is_not_finished_in_time_is_handed_back_while_requests_are_served(tmp_path: Path) -> None:
    """Another worker need not wait for the load balancer of this one."""
    (tmp_path / "patient.py").write_text(PATIENT_AGENT)
    agent = ("--agent", "patient:answer")
    flags = (*QUICK, *LONG, *agent, "--worker-shutdown-ms", "50")
    with closed_gate() as gate, served(tmp_path, *flags, env=gate.env) as server:
        with server.client.events() as events:
            server.client.post("/v1/messages", message("ann", "1"))
            turn_id = first(events, "claimed")["turnId"]
        client = draining(server).client
        eventually(client, f"/v1/turns/{turn_id}", leaseUntilAt=None)
        gate.open()
        with served(tmp_path, *agent, "--role", "work", env=gate.env):
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


def is_idle(client: Client) -> bool:
    return {found["status"] for found in client.get("/v1/conversations")["conversations"]} == {"idle"}


def test_a_rolling_restart_under_load_loses_nothing(tmp_path: Path) -> None:
    """Accepting and working processes are replaced one by one, the latter in the middle of their answers; every
    acknowledged message is answered exactly once."""
    (tmp_path / "recording.py").write_text(RECORDING)
    sender = Sender(lambda number: (f"c{number % 20}", f"m{number}"))
    with ExitStack() as stack:
        gates = [stack.enter_context(closed_gate()) for _ in range(3)]

        def acceptor() -> Served:
            server = stack.enter_context(served(tmp_path, *QUICK, "--role", "accept"))
            sender.targets.append(server.client)
            return server

        def worker(gate: Gate) -> Served:
            flags = (*QUICK, "--role", "work", "--agent", "recording:answer", "--worker-concurrency", "5")
            return stack.enter_context(served(tmp_path, *flags, env=gate.env))

        acceptors = [acceptor() for _ in range(2)]
        old = worker(gates[0])
        stack.callback(sender.end)
        sender.start()
        for generation in range(2):
            sender.go_on(100)
            acceptors.append(acceptor())
            assert acceptors[generation].stop() == 0
            sender.go_on(100)
            new = worker(gates[generation + 1])
            draining(old)
            gates[generation].open()
            assert old.process.wait(PATIENCE_S) == 0
            old = new
        sender.end()
        gates[2].open()
        assert any(is_idle(old.client) for _ in range(5_000))
        assert old.client.get("/v1/dead-letters")["deadLetters"] == []
    answers = [json.loads(line) for line in (tmp_path / "answered").read_text().splitlines()]
    assert sender.refused > 0
    assert {port for port, _, _ in answers} == {gate.env["GATE_PORT"] for gate in gates}, "each worker had some"
    assert {attempt for _, attempt, _ in answers} == {1}
    answered = sorted(id for _, _, ids in answers for id in ids)
    assert answered == sorted(chain(*sender.acknowledged.values()))
