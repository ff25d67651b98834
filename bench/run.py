"""One contender under one load: a server, a worker process, a client process, and what came of it."""

import asyncio
import itertools
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from bench.bursts import Plan
from bench.contenders import Command, Contender
from bench.figures import Figures, Handed, Sent, figures, finished
from bench.peers import CannotRun
from bench.servers import STORES, Server, busy_s, cpu_s

ROOT = Path(__file__).parent.parent
START_S = 60.0
STOP_S = 20.0
STALLED_S = 15.0
LOOK_S = 0.2
TELL_S = 5


@dataclass(frozen=True, slots=True)
class Side:
    """A process that speaks as `side.py` says."""

    process: asyncio.subprocess.Process
    errors: Path

    async def hear(self, word: str, limit_s: float) -> None:
        """Returns once the process says `word`."""
        assert self.process.stdout is not None
        try:
            while line := await asyncio.wait_for(self.process.stdout.readline(), limit_s):
                if line.decode().strip() == word:
                    return
        except TimeoutError:
            raise CannotRun(f"it did not say {word!r} within {limit_s:.0f} s") from None
        raise CannotRun(f"it ended before it said {word!r}: {self.errors.read_text().strip()[-500:]}")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    @property
    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)


class Following:
    """The hand-overs that the worker has written so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.handed: list[Handed] = []
        self._finished: set[str] = set()

    def look(self) -> int:
        """Reads what is new; returns how many bursts are finished."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")[0]
            self._read += len(whole) + 1 if whole else 0
            new: list[Handed] = [tuple(json.loads(line)) for line in whole.splitlines()]
            self.handed += new
            self._finished |= finished(new)
        return len(self._finished)


async def measure(contender: Contender, plan: Plan, idle_s: float = 0.0) -> Figures:
    """With `idle_s`, also what both sides ask of the store for so long once there is nothing to do."""
    client_command, worker_command = contender.sides()
    with tempfile.TemporaryDirectory(prefix="turntake-bench-") as name, STORES[contender.store](Path(name)) as server:
        folder = Path(name)
        plan.write(folder / "plan.json")
        async with AsyncExitStack() as stack:
            worker = await stack.enter_async_context(_side(worker_command, server.url, folder, "handed"))
            client = await stack.enter_async_context(_side(client_command, server.url, folder, "sent"))
            found = await _played(client, worker, server, plan, folder)
            idle = await _idle(server, idle_s) if idle_s else None
        return replace(found, idle_commands_a_second=idle)


async def _played(client: Side, worker: Side, server: Server, plan: Plan, folder: Path) -> Figures:
    def spent() -> tuple[float, ...]:
        return client.cpu_s, worker.cpu_s, server.cpu_s(), process_time(), busy_s(), perf_counter()

    before = spent()
    following = Following(folder / "handed.jsonl")
    client.go()
    telling = asyncio.create_task(_tell(following, len(plan.bursts)))
    try:
        await client.hear("done", plan.limit_ms / 1000 + START_S)
        sent: list[Sent] = [tuple(line) for line in lines_of(folder / "sent.jsonl")]
        await _drained(following, len({conversation for conversation, _, _, _ in sent}))
    finally:
        telling.cancel()
    *parts, bench, busy, elapsed = (late - early for early, late in zip(before, spent(), strict=True))
    cpu_client, cpu_worker, cpu_store = (1000 * part / len(sent) for part in parts)
    return replace(
        figures(sent, following.handed, plan.silence_ms),
        cpu_client=cpu_client,
        cpu_worker=cpu_worker,
        cpu_store=cpu_store,
        cores_of_others=(busy - bench - sum(parts)) / elapsed,
    )


async def _drained(following: Following, bursts: int) -> None:
    """Until the last message of every burst was handed over, or no more come."""
    before, looked_at = -1, perf_counter()
    while (count := following.look()) < bursts and perf_counter() - looked_at < STALLED_S:
        if count > before:
            before, looked_at = count, perf_counter()
        await asyncio.sleep(LOOK_S)


async def _tell(following: Following, bursts: int) -> None:
    for seconds in itertools.count(TELL_S, TELL_S):
        await asyncio.sleep(TELL_S)
        print(f"    {seconds} s: {following.look()} of {bursts} bursts", flush=True)


async def _idle(server: Server, seconds: float) -> float | None:
    await asyncio.sleep(server.settle_s)
    before = server.commands()
    started = perf_counter()
    await asyncio.sleep(seconds)
    after = server.commands()
    return None if before is None or after is None else (after - before) / (perf_counter() - started)


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@asynccontextmanager
async def _side(command: Command, url: str, folder: Path, out: str) -> AsyncIterator[Side]:
    errors = folder / f"{out}.log"
    with errors.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            url,
            str(folder / "plan.json"),
            str(folder / f"{out}.jsonl"),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    side = Side(process, errors)
    try:
        await side.hear("ready", START_S)
        yield side
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()
