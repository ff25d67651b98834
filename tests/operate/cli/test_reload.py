"""`turntake serve --reload`: the server starts again when a file of its agent changes, mistakes included."""

import os
import signal
import subprocess
from pathlib import Path

from harness.serving import QUICK, Served, command, environment
from turntake.operate.cli.reload import changed_at, watched

AGENT = """
async def answer(turn):
    return "{}"
"""


def test_a_change_starts_the_server_again(tmp_path: Path) -> None:
    """A mistake is told, and the next change mends it; a stop reaches the server, which ends as politely as ever."""
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT.format("one"))
    process = subprocess.Popen(
        command("serve", "--port", "0", "--agent", "agent:answer", "--reload", *QUICK),
        cwd=tmp_path,
        env=environment({"PYTHONDONTWRITEBYTECODE": "1"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            server = Served(process, "")
            agent.write_text("def answer(turn)")
            server.logged("Stopped")
            assert process.stderr is not None
            assert "raised SyntaxError: expected ':' (agent.py:1)" in process.stderr.readline()
            agent.write_text(AGENT.format("three"))
            server.logged("Listening")
            assert server.stop(signal.SIGTERM) == 0
            server.logged("Stopped")
        finally:
            process.kill()


def test_python_files_and_settings_are_watched_but_not_what_is_installed(tmp_path: Path) -> None:
    wanted = ["agent.py", "deep/er/tools.py", "turntake.toml", ".env"]
    for name in [*wanted, "notes.txt", ".venv/lib/x.py", "venv/y.py", "node_modules/z.py", "__pycache__/agent.py"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(path.relative_to(tmp_path).as_posix() for path in watched(tmp_path)) == sorted(wanted)
    before = changed_at(tmp_path)
    os.utime(tmp_path / "deep/er/tools.py", ns=(1, 1))
    assert changed_at(tmp_path) != before
