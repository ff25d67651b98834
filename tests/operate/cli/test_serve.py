"""`turntake serve` as a real process: it starts, stops politely, loses nothing, and explains what is wrong."""

import logging
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.serving import PATIENCE_S, PATIENT, QUICK, command, environment, eventually, first, run, served
from turntake.operate.cli import main

SESAME = "open-sesame-said-ali-baba"
STUCK = """
import asyncio
async def answer(turn):
    await asyncio.Event().wait()
"""
LOADED = """
import sys
from turntake.http import server
from turntake.operate.cli import build, serve
from turntake.operate.assemble import assemble
from turntake.operate.options.sources import load
build().parse_args(["serve", "--port", "0"])
assemble(load()).turns.asgi()
print(*{"httpx2", "rich", "pydantic"} & set(sys.modules))
"""
# As an interactive shell does with `&`: a process group of its own, which is not the terminal's.
IN_BACKGROUND = """
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.execv(sys.argv[1], sys.argv[1:])
    os.waitpid(job, 0)
    os._exit(0)
said = ""
while "stops it" not in said:
    said += os.read(terminal, 4096).decode()
print(said, flush=True)
os.kill(int(said.split("kill ")[1].split()[0]), signal.SIGTERM)
os.waitpid(pid, 0)
"""
OBJECT = """
from turntake import TurnTake
turns = TurnTake("memory://")
@turns.handler
async def answer(turn):
    return "from the object"
"""


@pytest.fixture(autouse=True)
def _same_logging_afterwards() -> Iterator[None]:
    """Serving in this process changes how it logs."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def message(text: str, id: str = "1") -> dict[str, str]:
    return {"conversation": "ann", "id": id, "text": text}


def test_what_a_channel_lacks_is_told_at_the_start(tmp_path: Path) -> None:
    """Only what it needs: listening is a choice. Twilio needs the address that it signs as well."""
    half = {"TURNTAKE_TELEGRAM_BOT_TOKEN": "1:a", "TURNTAKE_TWILIO_AUTH_TOKEN": "x"}
    with served(tmp_path, env=half) as running:
        lacks = {
            line["channel"]: line["missing"] for line in running.log if line["message"] == "A channel is not ready"
        }
        (unset,) = [line["message"] for line in running.log if line["message"].startswith("Not set: ")]
    assert lacks == {"telegram": "TURNTAKE_TELEGRAM_SECRET_TOKEN", "twilio": "TURNTAKE_TWILIO_ACCOUNT_SID"}
    assert "TURNTAKE_PUBLIC_URL (Twilio signs it" in unset
    with served(tmp_path, env=half | {"TURNTAKE_PUBLIC_URL": "https://bot.example"}) as running:
        assert "TURNTAKE_PUBLIC_URL" not in str(running.log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_stop_loses_nothing(tmp_path: Path, number: int) -> None:
    """What was acknowledged before the stop is answered after the next start on the same file."""
    with served(tmp_path, *PATIENT) as before:
        receipt = before.client.post("/v1/messages", message("are you there?"))
        assert receipt["status"] == "buffered"
        assert before.stop(number) == 0
    with served(tmp_path, *PATIENT) as after:
        with after.client.events() as events:
            after.client.post(f"/v1/conversations/{receipt['conversationKey']}/flush")
            answered = first(events, "answered")
        assert "are you there?" in answered["replies"][0]
        assert after.stop() == 0


def test_an_unfinished_answer_is_handed_back(tmp_path: Path) -> None:
    """The same turn comes again after the restart, at once and without having to wait for a lease."""
    (tmp_path / "stuck.py").write_text(STUCK)
    with served(tmp_path, *QUICK, "--agent", "stuck:answer", "--worker-shutdown-ms", "50") as before:
        with before.client.events() as events:
            before.client.post("/v1/messages", message("hello"))
            turn_id = first(events, "claimed")["turnId"]
        assert before.client.get(f"/v1/turns/{turn_id}")["status"] == "answering"
        assert before.stop() == 0
    with served(tmp_path, "--role", "accept") as meanwhile:
        assert meanwhile.client.get(f"/v1/turns/{turn_id}")["leaseUntilAt"] is None
    with served(tmp_path) as after:
        assert eventually(after.client, f"/v1/turns/{turn_id}", status="answered")["attempt"] == 2


def test_a_second_signal_hands_back_at_once_and_is_still_a_clean_stop(tmp_path: Path) -> None:
    """Whoever is in a hurry loses nothing: the exit code is 0, and the turn waits for the next start."""
    (tmp_path / "stuck.py").write_text(STUCK)
    with served(tmp_path, *QUICK, "--agent", "stuck:answer", "--worker-shutdown-ms", "600000") as server:
        with server.client.events() as events:
            server.client.post("/v1/messages", message("hello"))
            turn_id = first(events, "claimed")["turnId"]
            server.process.send_signal(signal.SIGTERM)
            assert list(events) == []
        # The streams end when the server has closed; from here on only the answer is waited for.
        server.logged("Waiting for answers under way; another Ctrl-C or SIGTERM hands them back at once")
        assert server.stop() == 0
    with served(tmp_path, "--role", "accept") as meanwhile:
        assert meanwhile.client.get(f"/v1/turns/{turn_id}")["leaseUntilAt"] is None


def test_however_many_signals_come_until_its_end_it_stops_cleanly(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        while server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGINT)
        assert server.process.returncode == 0
        server.logged("Stopped")
        assert list(server.process.stderr or ()) == []


def test_watchers_do_not_delay_the_stop(tmp_path: Path) -> None:
    with served(tmp_path, "--worker-shutdown-ms", "600000") as server, server.client.events() as events:
        assert server.stop() == 0
        assert list(events) == []


def test_api_keys_are_asked_for(tmp_path: Path) -> None:
    with served(tmp_path, "--host", "0.0.0.0", env={"TURNTAKE_API_KEYS": SESAME}, key=SESAME) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert [line["host"] for line in server.log if "host" in line] == ["0.0.0.0"]
        assert server.client.get("/v1/conversations")["conversations"] == []
        said = run("conversations", "--url", server.url, folder=tmp_path)
        assert "asks for an API key: give it with --key" in said.stderr
        wrong = run("conversations", "--url", server.url, "--key", "wrong", folder=tmp_path)
        assert "does not know this API key" in wrong.stderr
        assert said.returncode == 1
        assert run("send", "hi", "--url", server.url, "--key", SESAME, folder=tmp_path).returncode == 0


def test_an_object_as_agent_brings_its_own_store(tmp_path: Path) -> None:
    """And settings that it does not take are named."""
    (tmp_path / "mine.py").write_text(OBJECT)
    with served(tmp_path, "--agent", "mine:turns", "--store", "sqlite:///other.db") as server:
        (warning,) = [line["message"] for line in server.log if "ignored" in line["message"]]
        assert warning == "mine:turns brings its own store and rules; ignored: store."
        assert server.stop() == 0
        assert [line["store"] for line in server.log if "store" in line] == ["(that of the agent's module)"]
    assert not (tmp_path / "other.db").exists()


def test_a_store_that_is_ignored_is_not_warned_about(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OBJECT)
    with served(tmp_path, "--agent", "mine:turns", "--store", "memory://") as server:
        assert server.stop() == 0
        assert not [line for line in server.log if "forgets everything" in line["message"]]


def test_small_and_idle(tmp_path: Path) -> None:
    """An idle server stays below 80 MB."""
    with served(tmp_path) as server:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        (resident,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]
        assert resident < 80_000


def test_serving_loads_only_what_it_needs(tmp_path: Path) -> None:
    """No HTTP client, no terminal library, no second validation library."""
    said = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=tmp_path, env=environment(), check=True, capture_output=True
    )
    assert said.stdout.decode().split() == []


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--host", "0.0.0.0"], "Listening on 0.0.0.0 needs an API key"),
        (["--rules-silence-ms", "x"], 'rules.silence_ms = "x" in --rules-silence-ms: expected an integer'),
        (["--agent", "nobody:answer"], "There is no module 'nobody'"),
        (["--store", "sqlite:///no/such/folder/t.db"], "no/such/folder/t.db: there is no folder"),
        (["--store", "mysql://x"], "There is no store called 'mysql'; installed are: "),
        (["--store", "sqllite:///x.db"], "There is no store called 'sqllite'; did you mean 'sqlite'?"),
        (["--agent", "localhost:9000/turn"], "write http://localhost:9000/turn if it is the address"),
        (["--store", "host=db user=me password=x"], "The store is no URL: write sqlite:///turntake.db"),
        (["--config", "gone.toml"], "gone.toml cannot be read"),
        (["--prot", "1"], "Unknown option: --prot. Did you mean --port? Try: turntake serve --help"),
        (["--host", "256.1.1.1"], "needs an API key"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("turntake: ")
    assert says in line


def test_a_store_that_is_not_there_is_a_line_that_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        url = f"redis://127.0.0.1:{nobody.getsockname()[1]}/0"
        said = run("serve", "--port", "0", "--store", url, folder=tmp_path)
    assert said.returncode == 1
    (line,) = said.stderr.splitlines()
    assert line.endswith("Does the store's server run, and is --store right? Try: turntake doctor")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = run("serve", "--port", str(port), folder=tmp_path)
    assert said.returncode == 2
    assert said.stderr == (
        f"turntake: Port {port} on 127.0.0.1 is in use: "
        f"stop what runs there, or choose another with --port {port + 1}.\n"
    )


def banner(folder: Path, *flags: str, env: dict[str, str] | None = None) -> str:
    """What `turntake serve` says at a terminal."""
    ours, theirs = pty.openpty()
    serve = command("serve", "--port", "0", *flags)
    process = subprocess.Popen(serve, cwd=folder, env=environment(env), stdout=theirs, stderr=subprocess.DEVNULL)
    with process, os.fdopen(ours, errors="replace") as terminal:
        os.close(theirs)
        lines: list[str] = []
        while not lines or "Ctrl-C" not in lines[-1]:
            lines.append(terminal.readline())
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    return "".join(lines)


def test_banner_at_a_terminal(tmp_path: Path) -> None:
    """Where to find it, what it keeps and does, and a line to try."""
    said = banner(tmp_path)
    assert "is listening on http://127.0.0.1:" in said
    assert "sqlite:///turntake.db" in said
    assert "role   all: accepts messages and works on turns" in said
    assert "turntake send --follow " in said
    assert "curl http://127.0.0.1:" in said


@pytest.mark.parametrize("is_on_path", [True, False])
def test_the_line_to_try_works_in_a_shell_like_ours(tmp_path: Path, is_on_path: bool) -> None:
    """`make serve` calls .venv/bin/turntake, which a second terminal does not find by its name."""
    if is_on_path:
        (tmp_path / "turntake").touch(0o755)
    said = banner(tmp_path, env={"PATH": str(tmp_path)})
    assert f"    {'' if is_on_path else sys.executable + ' -m '}turntake send --follow" in said


def test_the_banner_says_that_others_reach_it(tmp_path: Path) -> None:
    said = banner(tmp_path, "--host", "0.0.0.0", env={"TURNTAKE_API_KEYS": SESAME})
    assert "host   0.0.0.0, which is every address of this machine" in said
    assert "is listening on http://127.0.0.1:" in said


def test_a_first_start_is_quiet(tmp_path: Path) -> None:
    """Nothing is wrong, so nothing is warned about: the first line is where it listens, and no line is logged."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("serve", "--port", "0"), cwd=tmp_path, env=environment(), stdout=theirs, stderr=theirs
    )
    with process, os.fdopen(ours, errors="replace") as terminal:
        os.close(theirs)
        lines = [terminal.readline().strip()]
        while "Ctrl-C" not in lines[-1]:
            lines.append(terminal.readline().strip())
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert next(filter(None, lines)).startswith("turntake is listening on http://127.0.0.1:")
    assert [line for line in lines if "INFO" in line or "WARNING" in line] == []
    assert "chats  none configured, so every webhook is refused; see `turntake channels`" in lines


def test_a_job_in_the_background_says_how_to_stop_it(tmp_path: Path) -> None:
    """Ctrl-C does not reach it."""
    said = subprocess.run(
        [sys.executable, "-c", IN_BACKGROUND, *command("serve", "--port", "0")],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "It runs in the background: kill " in said.stdout, said.stderr
    assert "Ctrl-C" not in said.stdout


def test_the_banner_promises_only_what_the_role_does(tmp_path: Path) -> None:
    """Answers cannot be followed where none are given, and nothing is sent where nothing is taken."""
    accepting = banner(tmp_path, "--role", "accept")
    assert "role   accept: only accepts messages" in accepting
    assert "turntake send --url" in accepting
    working = banner(tmp_path, "--role", "work")
    assert "role   work: only works on turns" in working
    assert "curl" not in working
