"""`turntake serve --reload`: a server that starts again whenever its files change, for whoever writes an agent.

How this works: this process only watches. The server is a child of it, with the same arguments. When a file changed,
the child is stopped politely, as by Ctrl-C, and a new one is started. A child that ends by itself, for example because
of a mistake in the agent, is started again at the next change. Both get the signals of the terminal; this process
waits for the child to stop.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from turntake.clock import SystemClock
from turntake.operate.cli.output import paint, say
from turntake.operate.options.env_file import ENV_FILE
from turntake.operate.options.sources import CONFIG_FILE

LOOK_MS = 300  # as soon as a person has changed windows, at a cost that nobody notices
SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv", "env"}
SETTINGS = (CONFIG_FILE, ENV_FILE)

Times = dict[Path, int]


def keep_serving() -> int:
    """Serves with the arguments of this command until told to stop; the exit code of the last server."""
    return Reloader([sys.executable, "-m", "turntake", *(word for word in sys.argv[1:] if word != "--reload")]).run()


class Reloader:
    """Runs a command, and again after each change of a file in `folder`."""

    def __init__(self, command: list[str], folder: Path = Path()) -> None:
        self._command = command
        self._folder = folder
        self._clock = SystemClock()
        self._is_stopping = False
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        seen = changed_at(self._folder)
        while True:
            self._child = subprocess.Popen(self._command)
            code = self._until_changed(self._child, seen)
            if self._is_stopping:
                return code
            now = changed_at(self._folder)
            names = ", ".join(sorted({str(path) for path, _ in now.items() ^ seen.items()})[:3])
            say(paint("dim", f"  Changed: {names or 'a file'}. Starting again."))
            sys.stdout.flush()
            seen = now

    def _until_changed(self, child: "subprocess.Popen[bytes]", seen: Times) -> int:
        """Returns once the child has ended after a change, or because we were told to stop."""
        while not self._is_stopping and changed_at(self._folder) == seen:
            self._clock.pause(LOOK_MS)
        if child.poll() is None and not self._is_stopping:
            child.terminate()
        return child.wait()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C at a terminal reaches the child by itself; any other signal is passed on."""
        self._is_stopping = True
        is_passed_on = number != signal.SIGINT or not sys.stdin.isatty()
        if self._child is not None and self._child.poll() is None and is_passed_on:
            self._child.send_signal(number)


def changed_at(folder: Path) -> Times:
    """When each file that matters was last changed."""
    times = {}
    for path in watched(folder):
        try:
            times[path] = path.stat().st_mtime_ns
        except OSError:  # it was removed just now
            continue
    return times


def watched(folder: Path) -> Iterator[Path]:
    """The Python files in the folder and below, without installed packages and hidden folders, and the settings."""
    yield from (folder / name for name in SETTINGS if (folder / name).is_file())
    for home, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        yield from (Path(home) / name for name in files if name.endswith(".py"))
