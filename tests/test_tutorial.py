"""The programs in the tutorial and in the page on HTTP agents run, and say what the pages say."""

import base64
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from harness.conversation import talking
from harness.databases import HOST, free_port, until
from turntake import Rules
from turntake.deliver.http_agent import HttpSink
from turntake.standard_webhooks import signature

ROOT = Path(__file__).parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
AGENTS = ROOT / "examples" / "agents"
SECRET = "whsec_" + base64.b64encode(b"a secret of the tests only").decode()
NOW_S = 1_800_000_000


def programs(name: str) -> list[str]:
    """The versions of a file that the tutorial has its reader write."""
    return re.findall(rf"```python\n# {re.escape(name)}\n(.*?)```", TUTORIAL, re.DOTALL)


@contextmanager
def running(*command: str, port: int, **environment: str) -> Iterator[None]:
    """The program, once it listens on `port`."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(process, port))
        yield
    finally:
        process.kill()
        process.wait()


def listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    assert process.poll() is None, "it ended"
    with suppress(OSError), socket.create_connection((HOST, port)):
        return True
    return False


async def answer_of(url: str, secret: str = "") -> tuple[str, tuple[str, ...]]:
    """What becomes of a turn of two messages that an agent behind `url` is handed: its status and replies."""
    rules = Rules(silence_ms=0, typing_inference_ms=0, min_messages=2, max_attempts=1)
    async with talking(HttpSink(url, secrets=secret), rules=rules) as talk:
        await talk.say("Hey")
        await talk.say("are you open?")
        record = await talk.outcome()
    assert record.turn is not None
    return record.status, record.turn.progress.replies


def test_the_test_of_the_tutorial_prints_what_the_tutorial_says(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(programs("agent.py")[0])
    (tmp_path / "check.py").write_text(programs("check.py")[0])
    done = subprocess.run([sys.executable, "check.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"$ python check.py\n{done.stdout}```" in TUTORIAL


def test_the_agent_that_thinks_is_an_agent(tmp_path: Path) -> None:
    """It is the one that is killed; here its five seconds pass in no time."""
    assert len(programs("agent.py")) == 2
    (tmp_path / "agent.py").write_text(programs("agent.py")[1].replace("sleep(5)", "sleep(0)"))
    (tmp_path / "check.py").write_text(programs("check.py")[0])
    done = subprocess.run([sys.executable, "check.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"attempt 1 of turn_\w+: '.*'\nanswered \('I read 2 messages at once.',\)\n", done.stdout)


async def test_the_http_agent_of_the_tutorial_answers(tmp_path: Path) -> None:
    port = free_port()
    script = tmp_path / "http_agent.py"
    script.write_text(programs("http_agent.py")[0].replace("9000", str(port)))
    with running(sys.executable, str(script), port=port):
        status, (reply,) = await answer_of(f"http://127.0.0.1:{port}/turn")
    assert status == "answered"
    assert reply.startswith("2 messages came over HTTP, after ")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
@pytest.mark.parametrize(("secret", "status"), [(SECRET, "answered"), ("whsec_b3RoZXI=", "dead"), ("", "dead")])
async def test_the_node_agent_answers_what_turntake_signed_and_nothing_else(secret: str, status: str) -> None:
    port = free_port()
    environment = {"PORT": str(port), "TURNTAKE_AGENT_SECRET": SECRET}
    with running("node", str(AGENTS / "node_agent.mjs"), port=port, **environment):
        assert (await answer_of(f"http://127.0.0.1:{port}/turn", secret))[0] == status


def checked(headers: dict[str, str], body: bytes) -> bool:
    spec = importlib.util.spec_from_file_location("agent_signature", AGENTS / "signature.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result: bool = module.is_from_turntake(headers, body)
    return result


def signed(body: bytes, key: bytes, seconds: int = NOW_S) -> dict[str, str]:
    proof = signature(key, b"turn_1", str(seconds).encode(), body)
    return {"webhook-id": "turn_1", "webhook-timestamp": str(seconds), "webhook-signature": f"v1,other {proof}"}


def test_the_python_agents_believe_turntake_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNTAKE_AGENT_SECRET", SECRET)
    monkeypatch.setattr("time.time", lambda: float(NOW_S))
    key = b"a secret of the tests only"
    body = json.dumps({"data": {"text": "Hey"}}).encode()
    assert checked(signed(body, key), body)
    assert not checked(signed(body, key), body + b" ")
    assert not checked(signed(body, b"another"), body)
    assert not checked(signed(body, key, NOW_S - 301), body)
    assert not checked(signed(body, key, NOW_S + 301), body)
    assert not checked({**signed(body, key), "webhook-id": "turn_2"}, body)
    assert not checked({}, body)


@pytest.mark.parametrize("name", sorted(path.name for path in AGENTS.iterdir() if path.suffix in (".py", ".mjs")))
def test_the_page_on_http_agents_shows_the_files(name: str) -> None:
    assert f"\n{(AGENTS / name).read_text()}```\n" in (ROOT / "docs" / "howto" / "http-agent.md").read_text()
