"""The servers under measurement, each a process of its own, and what they cost."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from turntake.clock import SystemClock
from turntake.errors import TurntakeError

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
# Fifteen seconds: a busy machine needs three to import everything and migrate.
START_TRIES, START_PAUSE_MS = 300, 50


class Process(NamedTuple):
    """A server on this machine."""

    pid: int
    port: int

    @property
    def cpu_ms(self) -> float:
        """CPU time used so far, in user and kernel mode."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000 / TICKS_PER_SECOND

    @property
    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@asynccontextmanager
async def noop_server(kind: str) -> AsyncIterator[Process]:
    """The same HTTP server, answering without a store: `bare`, or `storeless` but otherwise whole."""
    port = free_port()
    async with _running(port, "-m", "turntake.operate.bench.noop", str(port), kind) as process:
        yield process


@asynccontextmanager
async def turntake_server(folder: Path, **settings: object) -> AsyncIterator[Process]:
    """`turntake serve` on an SQLite file of its own, with the echo agent."""
    port = free_port()
    environment = {"TURNTAKE_STORE": f"sqlite:///{folder / f'{port}.db'}", "TURNTAKE_AGENT": "echo"}
    environment |= {f"TURNTAKE_{name.upper()}": str(value) for name, value in settings.items()}
    async with _running(port, "-m", "turntake", "serve", "--port", str(port), environment=environment) as process:
        yield process


@asynccontextmanager
async def _running(port: int, *arguments: str, environment: dict[str, str] | None = None) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env=os.environ | (environment or {}),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _listening(port, process)
        yield Process(process.pid, port)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listening(port: int, process: asyncio.subprocess.Process) -> None:
    clock = SystemClock()
    for _ in range(START_TRIES):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if process.returncode is not None:
                break
            await clock.sleep(START_PAUSE_MS)
        else:
            writer.close()
            return
    raise TurntakeError("A server for the measurement did not start; `turntake doctor` may tell why.")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
