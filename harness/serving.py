"""A real `turntake serve` for tests: on a free port, in a folder of its own, stopped at the end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turntake.operate.client import Client, ServerEvent

PATIENCE_S = 20
PATIENT = ("--rules-silence-ms", "600000", "--rules-max-wait-ms", "600000", "--rules-typing-inference-ms", "0")
QUICK = ("--rules-silence-ms", "20", "--rules-typing-inference-ms", "0")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "turntake", *arguments]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without settings that the person at the keyboard may have."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TURNTAKE_")}
    return kept | {"NO_COLOR": "1"} | dict(more or {})


def run(*arguments: str, folder: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """One command from start to end."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


class Served:
    """The process, and a client for it."""

    def __init__(self, process: "subprocess.Popen[str]", key: str) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self.url = self.logged("Listening")["url"]
        self.client = Client(self.url, key)

    def logged(self, message: str) -> dict[str, Any]:
        """Reads the log until it says so; the end of the log ends the wait."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line))
            if self.log[-1]["message"] == message:
                return self.log[-1]
        raise AssertionError(f"never logged {message!r}: {self.log}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextmanager
def served(folder: Path, *flags: str, env: Mapping[str, str] | None = None, key: str = "") -> Iterator[Served]:
    process = subprocess.Popen(
        command("serve", "--port", "0", *flags),
        cwd=folder,
        env=environment(env),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            server = Served(process, key)
            with server.client:
                yield server
        finally:
            process.kill()


def eventually(client: Client, path: str, **wanted: object) -> dict[str, Any]:
    """What is found there once it says what is wanted; asks a bounded number of times."""
    for _ in range(5_000):
        found: dict[str, Any] = client.get(path)
        if wanted.items() <= found.items():
            return found
    raise AssertionError(f"{path} never said {wanted}: {found}")


def first(events: Iterator[ServerEvent], kind: str) -> dict[str, Any]:
    """The next event of this kind."""
    return next(event.data for event in events if event.kind == kind)
