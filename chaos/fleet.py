"""`turntake serve` as processes that are started again whenever they end, as a supervisor would."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil  # type: ignore[import-untyped]

from harness.databases import free_port

START_S = 60.0
STOP_S = 25.0
PAUSE_S = 0.1
STEPPED_CLOCK = Path(__file__).parent / "stepped_clock"


class Process:
    """One of them, always on the same port. `troubles` are things it should not have done.

    `python` is the interpreter of the environment in which turntake is installed; another one than ours has another
    release.
    """

    def __init__(
        self, name: str, role: str, environment: Mapping[str, str], folder: Path, python: str = sys.executable
    ) -> None:
        self.name = name
        self.role = role
        self.python = python
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{name}.log"
        self.troubles: list[str] = []
        self.failed_starts = 0
        self._arguments = ["-m", "turntake", "serve", "--role", role, "--port", str(port)]
        self._clock = folder / f"{name}.clock"
        path = os.pathsep.join(filter(None, (str(STEPPED_CLOCK), os.environ.get("PYTHONPATH"))))
        clock = {"PYTHONPATH": path, "CHAOS_CLOCK": str(self._clock)}
        self._environment = {**os.environ, **clock, **environment}
        self._process: asyncio.subprocess.Process | None = None
        self._is_ready = asyncio.Event()
        self._is_meant_to_end = False
        self._is_wanted = True

    def open(self) -> None:
        self._is_wanted = True
        self._keeping = asyncio.create_task(self._keep())

    async def close(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends it for good, or until it is opened again."""
        self._is_wanted = False
        await self.end(how)
        await self._keeping

    async def ready(self) -> None:
        """Returns once it takes what its role takes."""
        try:
            await asyncio.wait_for(self._is_ready.wait(), START_S)
        except TimeoutError:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self.name} did not become ready:\n{tail}") from None

    async def end(self, how: signal.Signals) -> None:
        """Sends the signal and waits for the end. One that does not listen to a polite signal is killed."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        was_ready, self._is_meant_to_end = self._is_ready.is_set(), True
        self._is_ready.clear()
        _send(process, how)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_S)
        if process.returncode is None:
            self.troubles.append(f"{self.name} had not stopped {STOP_S:.0f} s after SIGTERM")
            _send(process, signal.SIGKILL)
            await process.wait()
        elif how == signal.SIGTERM and was_ready and process.returncode not in (0, -signal.SIGKILL):
            self.troubles.append(f"{self.name} ended with {process.returncode} after SIGTERM")

    async def restart(self, how: signal.Signals) -> None:
        """Ends it and waits until it is back."""
        await self.end(how)
        await self.ready()

    def set_clock(self, ahead_s: float) -> None:
        """Its wall clock is ahead by so much. Our clock asks it when a process starts, and then counts for itself."""
        self._clock.write_text(str(ahead_s), encoding="ascii")

    def speaks_from(self, port: int) -> bool:
        """Whether one of its connections begins at that port."""
        with suppress(psutil.Error):
            if self._process is not None:
                connections = psutil.Process(self._process.pid).net_connections("tcp4")
                return any(connection.laddr.port == port for connection in connections)
        return False

    async def upgrade(self) -> None:
        """Stops it politely; it comes back on this release."""
        self.python = sys.executable
        await self.restart(signal.SIGTERM)

    async def pause(self, seconds: float) -> None:
        """Stopped in the middle of whatever it does."""
        process = self._process
        if process is None:
            return
        _send(process, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            _send(process, signal.SIGCONT)

    async def _keep(self) -> None:
        while self._is_wanted:
            self._is_meant_to_end = False
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    self.python, *self._arguments, env=self._environment, stdout=log, stderr=log
                )
            looking = asyncio.create_task(self._look())
            code = await self._process.wait()
            looking.cancel()
            self._note(code)
            self._is_ready.clear()
            await asyncio.sleep(PAUSE_S)

    def _note(self, code: int) -> None:
        """It may refuse to start while the store is away, but must not fall over once it runs."""
        if self._is_meant_to_end:
            return
        if self._is_ready.is_set():
            self.troubles.append(f"{self.name} ended by itself with {code}")
        else:
            self.failed_starts += 1

    async def _look(self) -> None:
        async with httpx2.AsyncClient(timeout=5) as client:
            while True:
                with suppress(httpx2.HTTPError):
                    if (await client.get(f"{self.url}/readyz")).status_code == 200:
                        self._is_ready.set()
                        return
                await asyncio.sleep(0.05)


class Fleet:
    """All processes of a run, on one store."""

    def __init__(self, processes: list[Process]) -> None:
        self.processes = processes
        self.acceptors = [process for process in processes if process.role != "work"]
        self.workers = [process for process in processes if process.role != "accept"]

    @property
    def earlier(self) -> list[Process]:
        """Those that run another release than this one."""
        return [process for process in self.processes if process.python != sys.executable]

    @property
    def doors(self) -> list[str]:
        return [process.url for process in self.acceptors]

    @property
    def troubles(self) -> list[str]:
        return [trouble for process in self.processes for trouble in process.troubles]

    async def open(self) -> None:
        """One after the other: starting costs more than running."""
        for process in self.processes:
            process.open()
            await process.ready()

    async def ready(self) -> float:
        """How long it took until all were."""
        began = time.monotonic()
        for process in self.processes:
            await process.ready()
        return time.monotonic() - began

    async def close(self) -> None:
        await asyncio.gather(*(process.close() for process in self.processes))

    def count(self, sentence: str) -> int:
        """How often the processes logged it."""
        return sum(process.log.read_text(errors="replace").count(sentence) for process in self.processes)


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)
