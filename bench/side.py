"""One side of a run, in a process of its own: the client that plays a plan, or the worker that notes hand-overs.

Standard library only: peers run it in their own environment. `bullmq/side.mjs` is the same in JavaScript.
Both sides say `ready` and end when their standard input does; the client waits for `go` and says `done`.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.bursts import Burst, Plan

Send = Callable[[str, int], Awaitable[tuple[float, float]]]
FLUSH_S = 0.2


def now_ms() -> float:
    return time.time() * 1000


class Talk:
    """Plays a plan through `send`, which takes a conversation and a number, and returns when it left and came back."""

    def __init__(self, plan: Plan, send: Send) -> None:
        self._plan = plan
        self._send = send
        self._sent: list[tuple[str, int, float, float]] = []

    async def play(self) -> list[tuple[str, int, float, float]]:
        """Conversation, number, sent at and answered at of each message, once all are answered."""
        self._began = time.perf_counter()
        bursts = iter(self._plan.bursts)
        tasks = self._plan.people or len(self._plan.bursts)
        async with asyncio.TaskGroup() as people:
            for _ in range(tasks):
                people.create_task(self._people(bursts) if self._plan.people else self._person(next(bursts)))
        return self._sent

    async def _people(self, bursts: Iterator[Burst]) -> None:
        for burst in bursts:
            await self._person(burst)

    async def _person(self, burst: Burst) -> None:
        start = max(self._elapsed_ms(), burst.start_ms)
        await asyncio.sleep((start - self._elapsed_ms()) / 1000)
        if self._elapsed_ms() > self._plan.limit_ms:
            return
        for number, offset in enumerate(burst.offsets_ms):
            await asyncio.sleep(max(0.0, start + offset - self._elapsed_ms()) / 1000)
            sent_at, answered_at = await self._send(burst.conversation, number)
            self._sent.append((burst.conversation, number, sent_at, answered_at))

    def _elapsed_ms(self) -> float:
        return 1000 * (time.perf_counter() - self._began)


class Notes:
    """Hand-overs, written to a file a few times a second so that the bench can follow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[tuple[str, Sequence[int], float, float | None]] = []

    def handed(self, conversation: str, numbers: Sequence[int], due_at: float | None = None) -> None:
        """Numbers of the messages handed over, now. `due_at` where the contender tells it."""
        self._lines.append((conversation, numbers, now_ms(), due_at))

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        write_lines(self._path, lines)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        flushing = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            flushing.cancel()
            self.flush()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self.flush()


async def run_client(plan: Plan, out: Path, send: Send) -> None:
    talk = Talk(plan, send)
    commands = await said_to_us()
    print("ready", flush=True)
    await commands.readline()
    write_lines(out, await talk.play())
    print("done", flush=True)
    await commands.read()


async def run_worker(notes: Notes) -> None:
    """Notes hand-overs until standard input ends; the caller has started its worker before."""
    commands = await said_to_us()
    async with notes.kept():
        print("ready", flush=True)
        await commands.read()


async def said_to_us() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def write_lines(path: Path, lines: Sequence[object]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
