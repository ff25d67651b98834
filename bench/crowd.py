"""A neighbour's acknowledgements while strangers hold connections. `python -m bench.crowd --each 1000`

Of each kind `--each` connections are open at once: idle ones that send nothing, slow ones that send a byte of a header
each second, and large ones that send 64 KiB of one header. What ends is opened again within ten seconds, until the
crowd leaves. Meanwhile a neighbour sends messages, and every tenth on a new connection. Shown are the latencies of its
acknowledgements before, during and after, and the memory of the server.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from turntake.operate.bench.load import Load
from turntake.operate.bench.processes import Process, turntake_server

EVERY_MS = 20
"""Fifty messages a second: the neighbour is somebody who talks, not another load."""
LARGE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: " + b"a" * 65_536
SLOW = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "
AGAIN_S = 10.0
"""Within this time whatever was closed is opened again, as soon as the server closes the slow ones."""
SETTLED_S = 15
"""More than the ten seconds that a server gives to headers."""


@dataclass(slots=True)
class Seen:
    """What the neighbour saw in one phase."""

    phase: str
    latencies_ms: list[float]
    refused: int
    memory_mb: float

    def line(self) -> str:
        ordered = sorted(self.latencies_ms) or [float("nan")]
        p50, p99 = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.99))
        return (
            f"{self.phase:<8}{len(ordered):>6} acknowledged, {self.refused} refused;  p50 {p50:6.1f} ms, "
            f"p99 {p99:6.1f} ms, slowest {ordered[-1]:6.1f} ms;  {self.memory_mb:6.1f} MB"
        )


async def measure(each: int, seconds: float) -> list[Seen]:
    """Before, during and after the crowd."""
    with tempfile.TemporaryDirectory() as folder:
        async with turntake_server(Path(folder), rules_silence_ms=2_000) as server:
            await _neighbour(server, "warm-up", 2)
            before = await _neighbour(server, "before", seconds)
            crowd = await _crowd(server.port, each)
            try:
                during = await _neighbour(server, "during", seconds)
            finally:
                crowd.terminate()
                await crowd.wait()
            await asyncio.sleep(SETTLED_S)
            return [before, during, await _neighbour(server, "after", seconds)]


async def _neighbour(server: Process, phase: str, seconds: float) -> Seen:
    load = Load("127.0.0.1", server.port)
    seen = Seen(phase, [], 0, 0.0)
    end, number = perf_counter() + seconds, 0
    while perf_counter() < end:
        async with load.connections(1) as (connection,):
            for _ in range(10):
                number += 1
                body = {"conversation": f"{phase}-{number % 50}", "id": str(number), "text": "are you open?"}
                began = perf_counter()
                try:
                    status, _ = await connection.ask(load.post("/v1/messages", body))
                except ConnectionError:
                    status = 0
                if status == 202:
                    seen.latencies_ms.append((perf_counter() - began) * 1_000)
                else:
                    seen.refused += 1
                await asyncio.sleep(EVERY_MS / 1_000)
    seen.memory_mb = server.resident_mb
    return seen


async def _crowd(port: int, each: int) -> asyncio.subprocess.Process:
    """A process of strangers, once all their connections were opened."""
    arguments = ["-m", "bench.crowd", "--each", str(each), "--attack", str(port)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def attack(port: int, each: int) -> None:
    """Opens all connections, says so, and opens those that end again; until it is killed."""
    opened = asyncio.Semaphore(0)
    crowd = [asyncio.create_task(_stranger(port, kind, opened)) for kind in (_idle, _slow, _large) for _ in range(each)]
    for _ in crowd:
        await opened.acquire()
    print("all are there", flush=True)
    await asyncio.gather(*crowd)


Kind = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


async def _stranger(port: int, kind: Kind, opened: asyncio.Semaphore) -> None:
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.release()
            await kind(reader, writer)
            writer.close()
        await asyncio.sleep(random.uniform(0, AGAIN_S))


async def _idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(SLOW)
    while not reader.at_eof():
        writer.write(b"a")
        await writer.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(reader.read(65_536), 1)


async def _large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(LARGE)
    await writer.drain()
    await reader.read()


def main() -> None:
    parser = argparse.ArgumentParser("bench.crowd", description=__doc__)
    parser.add_argument("--each", type=int, default=1_000, help="connections of each of the three kinds")
    parser.add_argument("--seconds", type=float, default=20, help="how long each phase is measured")
    parser.add_argument("--attack", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        asyncio.run(attack(options.attack, options.each))
        return
    seen = asyncio.run(measure(options.each, options.seconds))
    for phase in seen:
        print(phase.line())
    print(f"memory afterwards: {seen[-1].memory_mb - seen[0].memory_mb:+.1f} MB")


if __name__ == "__main__":
    main()
