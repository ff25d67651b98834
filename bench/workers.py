"""What a message costs the server with one worker and with many: `python -m bench.workers [how many…] [stores…]`.

How this works: people write one message each, at an even rate, and each becomes a turn of its own. All workers run in
this process, each with connections of its own, so that their number is the only thing that changes. Shown are commands
(on Redis, those that scripts call included) or transactions (on PostgreSQL) and the server's CPU for each message, and
how late the turns were. The last column says how many times the first row's cost that is, the worse of both.

Forty workers are too much for one small machine, and one that cannot keep up asks more often. So time runs `--slower`
than it does: with 5, a second takes five, as if the machine were five times as fast.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from bench.servers import STORES, Server
from turntake import Rules, Turn, TurnTake
from turntake.clock import Clock, Timer

WORKERS = (1, 4, 16, 40)
SLOWER = 5
# Fifty messages a second: each slice of time has some, so that every watcher has something to do.
EVERY_MS = 20
MEASURED_MS = 10_000
SILENCE_MS = 200
RULES = Rules(silence_ms=SILENCE_MS, typing_inference_ms=0)
# Until every worker has heard of every other: each says every second that it lives.
MEETING_MS = 3_000
# Before what is measured: a PostgreSQL server counts a busy connection's transactions a second late, at both ends.
RUN_UP_MS = 2_000
START_AT = 1_700_000_000_000


class SlowClock(Clock):
    """The time since it was made, `slower` times as slow as it is."""

    def __init__(self, slower: float) -> None:
        self._slower = slower
        self._start = perf_counter()

    def now(self) -> int:
        return START_AT + int((perf_counter() - self._start) * 1000 / self._slower)

    def not_before(self, at: int) -> None:
        """Nobody else is there who could have seen a later time."""

    def call_at(self, at: int, action: Callable[[], None]) -> Timer:
        after_s = (at - START_AT) * self._slower / 1000 - (perf_counter() - self._start)
        return asyncio.get_running_loop().call_later(max(0.0, after_s), action)


class Cost(NamedTuple):
    """Of one message."""

    commands: float
    cpu_ms: float
    late_p50_ms: int
    late_p99_ms: int
    answered: float

    def line(self, name: str, workers: int, first: "Cost") -> str:
        times = max(self.commands / first.commands, self.cpu_ms / first.cpu_ms)
        return (
            f"{name:<12}{workers:>8}{self.commands:>12.1f}{self.cpu_ms:>12.2f}{self.late_p50_ms:>10}"
            f"{self.late_p99_ms:>10}{self.answered:>10.0%}{times:>8.2f}"
        )


async def speak(turns: TurnTake, count: int) -> None:
    """So many messages, at an even rate."""
    start_at = turns.clock.now()
    async with asyncio.TaskGroup() as sending:
        for number in range(count):
            await turns.clock.sleep_until(start_at + number * EVERY_MS)
            sending.create_task(turns.receive("hello", conversation=str(number), id=str(number)))


async def measured(server: Server, workers: int, duration_ms: int, slower: float) -> Cost:
    late: list[int] = []
    clock = SlowClock(slower)

    async def answer(turn: Turn) -> str:
        late.append(clock.now() - turn.messages[0].received_at - SILENCE_MS)
        return "hello"

    async with AsyncExitStack() as stack:
        accepting = await stack.enter_async_context(TurnTake(server.url, role="accept", rules=RULES, clock=clock))
        for _ in range(workers):
            working = TurnTake(server.url, role="work", rules=RULES, agent=answer, clock=clock)
            await stack.enter_async_context(working)
        await clock.sleep(MEETING_MS)
        speaking = asyncio.create_task(speak(accepting, (RUN_UP_MS + duration_ms) // EVERY_MS))
        await clock.sleep(RUN_UP_MS)
        late.clear()
        commands, cpu_s = server.commands() or 0, server.cpu_s()
        await clock.sleep(duration_ms)
        commands, cpu_s = (server.commands() or 0) - commands, server.cpu_s() - cpu_s
        ordered, count = sorted(late), duration_ms // EVERY_MS
        await speaking
    p50, p99 = (ordered[int(share * len(ordered))] for share in (0.5, 0.99))
    return Cost(commands / count, cpu_s * 1000 / count, p50, p99, len(ordered) / count)


async def measured_alone(name: str, workers: int, slower: float) -> Cost:
    """On a server that nobody used before."""
    with tempfile.TemporaryDirectory() as folder, STORES[name](Path(folder)) as server:
        return await measured(server, workers, MEASURED_MS, slower)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.workers")
    parser.add_argument("what", nargs="*", help="numbers of workers, and stores")
    parser.add_argument("--slower", type=float, default=SLOWER)
    chosen = parser.parse_args(arguments)
    numbers = [int(word) for word in chosen.what if word.isdecimal()] or WORKERS
    names = [word for word in chosen.what if word in STORES] or ["redis", "postgresql"]
    titles = ("store", "workers", "commands", "CPU ms", "late p50", "late p99", "answered", "times")
    print("{:<12}{:>8}{:>12}{:>12}{:>10}{:>10}{:>10}{:>8}".format(*titles))
    for name in names:
        first: Cost | None = None
        for workers in numbers:
            cost = asyncio.run(measured_alone(name, workers, chosen.slower))
            first = first or cost
            print(cost.line(name, workers, first), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
