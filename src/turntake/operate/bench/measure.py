"""The measurements, one function each; every figure is taken in the run that prints it."""

import asyncio
import json
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from turntake import plugins
from turntake.clock import SystemClock
from turntake.operate.bench.load import Load, batches, single_messages, stopwatch_ms
from turntake.operate.bench.processes import Process, noop_server, turntake_server
from turntake.operate.bench.raw import messages_per_second
from turntake.platforms.channel import Channel
from turntake.rules.key import ConversationKey

BATCH = 100  # the most that one request may hold
SAMPLED_TURNS = 500  # enough for a p99, and asked for in a second or two
BACKLOG_TRIES = 600  # a minute, a tenth of a second apart
SLICES = 10  # short enough that a busy moment of the machine hits every crowd alike
WEBHOOKS = 500  # a second: what the busiest pages see, and well below what one process takes
PLATFORM = "whatsapp"  # nested JSON, and an HMAC over the whole body
_clock = SystemClock()


class Figure(NamedTuple):
    """One line of the report."""

    name: str
    value: float
    unit: str
    note: str = ""


Report = Callable[[Figure], None]


async def against_running(host: str, port: int, key: str, for_ms: float, rate: float, report: Report) -> None:
    """A server that is already there: its own speed and lateness."""
    load = Load(host, port, key)
    name = f"bench-{stopwatch_ms() // 1_000:.0f}-"
    await _throughput(load, None, for_ms, f"{name}a", report)
    await _steady(load, None, for_ms, rate, f"{name}b", report)


async def everything(for_ms: float, rate: float, connections: int, waiting: tuple[int, ...], report: Report) -> None:
    """Servers of our own, beside the baselines."""
    with tempfile.TemporaryDirectory(prefix="turntake-bench-") as name:
        folder = Path(name)
        bare = await _noop("bare", "guards only", for_ms, connections, report)
        storeless = await _noop("storeless", "the whole service, no store", for_ms, connections, report)
        for per_commit in (1, BATCH):
            raw = await asyncio.to_thread(messages_per_second, folder / f"raw{per_commit}.db", per_commit, for_ms / 2)
            report(Figure(f"raw SQLite, {per_commit} a commit", raw, "messages/s", "synchronous=FULL"))
        async with turntake_server(folder) as server:
            await _idle(server, for_ms, report)
            single = await _throughput(Load("127.0.0.1", server.port), server, for_ms, "t", report, connections)
            report(Figure("  against the storeless server", 100 * single / storeless, "%"))
            report(Figure("  against the bare server", 100 * single / bare, "%"))
        async with turntake_server(folder) as server:
            await _steady(Load("127.0.0.1", server.port), server, for_ms, rate, "s", report)
        await _webhooks(folder, for_ms, report)
        await _by_waiting(folder, waiting, for_ms, report)


async def _noop(kind: str, note: str, for_ms: float, connections: int, report: Report) -> float:
    async with noop_server(kind) as server:
        load = Load("127.0.0.1", server.port)
        rate, _ = await _flood(load, single_messages(load, "n"), for_ms, connections)
    report(Figure(f"{kind} server, one message a request", rate, "requests/s", note))
    return rate


async def _throughput(
    load: Load, server: Process | None, for_ms: float, name: str, report: Report, connections: int = 32
) -> float:
    cpu = server.cpu_ms if server else 0.0
    rate, latencies = await _flood(load, single_messages(load, name), for_ms, connections)
    report(Figure("one message a request", rate, "messages/s"))
    report(Figure("  acknowledged within, p50", _quantile(latencies, 0.5), "ms"))
    report(Figure("  acknowledged within, p99", _quantile(latencies, 0.99), "ms"))
    await _drained(load)
    _report_cpu(server, cpu, len(latencies), report)
    cpu = server.cpu_ms if server else 0.0
    batched, latencies = await _flood(load, batches(load, f"{name}x", BATCH), for_ms, 8)
    report(Figure(f"{BATCH} messages a request", batched * BATCH, "messages/s"))
    report(Figure("  acknowledged within, p99", _quantile(latencies, 0.99), "ms"))
    await _drained(load)
    _report_cpu(server, cpu, len(latencies) * BATCH, report)
    return rate


async def _steady(load: Load, server: Process | None, for_ms: float, rate: float, name: str, report: Report) -> None:
    cpu = server.cpu_ms if server else 0.0
    names, latencies = await load.bursts(rate, 2 * for_ms, 16, name)
    await _drained(load)
    report(Figure(f"bursts of five at {rate:.0f} messages/s", len(latencies) * 1_000 / (2 * for_ms), "messages/s"))
    report(Figure("  acknowledged within, p50", _quantile(latencies, 0.5), "ms"))
    report(Figure("  acknowledged within, p99", _quantile(latencies, 0.99), "ms"))
    lateness, whole = await _lateness(load, names)
    report(Figure("  lateness (claim minus due), p50", _quantile(lateness, 0.5), "ms"))
    report(Figure("  lateness (claim minus due), p99", _quantile(lateness, 0.99), "ms"))
    report(Figure("  bursts handed over as one turn", 100 * whole, "%"))
    _report_cpu(server, cpu, len(latencies), report)


async def _webhooks(folder: Path, for_ms: float, report: Report) -> None:
    """Signed webhooks as a platform sends them, each verified, read and stored before it is acknowledged."""
    channel: Channel = plugins.load("channels", PLATFORM)({"app_secret": "bench"})
    key = secrets.token_urlsafe()
    async with turntake_server(folder, api_keys=key, **{f"{PLATFORM}_app_secret": "bench"}) as server:
        load = Load("127.0.0.1", server.port, key)

        def request_of(person: str, number: int) -> bytes:
            sample = channel.sample(
                "and it has not arrived yet", sender=person, id=f"{person}-{number}", url="", now=_clock.now()
            )
            return load.raw(f"/webhooks/{PLATFORM}", sample.headers, sample.body)

        cpu = server.cpu_ms
        _, latencies = await load.bursts(WEBHOOKS, 2 * for_ms, 16, "49170", request_of)
        await _drained(load)
        report(Figure(f"signed webhooks at {WEBHOOKS} a second", len(latencies) * 1_000 / (2 * for_ms), "webhooks/s"))
        report(Figure("  acknowledged within, p50", _quantile(latencies, 0.5), "ms"))
        report(Figure("  acknowledged within, p99", _quantile(latencies, 0.99), "ms"))
        _report_cpu(server, cpu, len(latencies), report)


async def _by_waiting(folder: Path, waiting: tuple[int, ...], for_ms: float, report: Report) -> None:
    """What a message costs with few and with many conversations waiting.

    They are measured by turns, so that both share whatever else the machine does.
    """
    patient = {"rules_silence_ms": 600_000, "rules_typing_inference_ms": 0, "rules_max_wait_ms": 3_600_000}
    crowds = []
    async with AsyncExitStack() as stack:
        for count in waiting:
            server = turntake_server(folder, **patient, rules_max_messages=100_000, rules_capacity=100_000)
            crowds.append(Crowd(count, await stack.enter_async_context(server)))
            await _fill(crowds[-1].load, count)
        for _ in range(SLICES):
            for crowd in crowds:
                await crowd.talk(2 * for_ms / SLICES)
        for crowd in crowds:
            note = f"{crowd.cost_us:.0f} µs CPU each"
            report(Figure(f"with {crowd.count} conversations waiting", crowd.rate, "messages/s", note))
            report(Figure("  resident", crowd.server.resident_mb, "MB"))
    if len(crowds) > 1:
        ratio = 100 * crowds[-1].cost_us / crowds[0].cost_us
        report(Figure("  CPU a message, most against fewest waiting", ratio, "%"))


class Crowd:
    """So many conversations, all waiting, of which about a thousand go on talking."""

    def __init__(self, count: int, server: Process) -> None:
        self.count = count
        self.server = server
        self.load = Load("127.0.0.1", server.port)
        self._requests = single_messages(self.load, "w", self._one_of)
        self._cpu_ms, self._talked_ms, self._messages = 0.0, 0.0, 0

    async def talk(self, for_ms: float) -> None:
        cpu, started = self.server.cpu_ms, stopwatch_ms()
        self._messages += len(await self.load.flood(self._requests, for_ms, 32))
        self._cpu_ms += self.server.cpu_ms - cpu
        self._talked_ms += stopwatch_ms() - started

    @property
    def cost_us(self) -> float:
        return 1_000 * self._cpu_ms / self._messages

    @property
    def rate(self) -> float:
        return self._messages * 1_000 / self._talked_ms

    def _one_of(self, number: int) -> str:
        return f"w{number * max(1, self.count // 997) % self.count}"


async def _fill(load: Load, count: int) -> None:
    async with load.connections(1) as (connection,):
        for first in range(0, count, BATCH):
            body = [
                {"conversation": f"w{n}", "id": "first", "text": "hello"}
                for n in range(first, min(count, first + BATCH))
            ]
            await connection.ask(load.post("/v1/messages", body))


async def _idle(server: Process, for_ms: float, report: Report) -> None:
    await _clock.sleep(2_000)
    cpu, started = server.cpu_ms, stopwatch_ms()
    await _clock.sleep(int(for_ms))
    report(Figure("idle: resident", server.resident_mb, "MB"))
    report(Figure("idle: CPU", 100 * (server.cpu_ms - cpu) / (stopwatch_ms() - started), "%"))


async def _flood(load: Load, requests: Iterator[bytes], for_ms: float, connections: int) -> tuple[float, list[float]]:
    started = stopwatch_ms()
    latencies = await load.flood(requests, for_ms, connections)
    return len(latencies) * 1_000 / (stopwatch_ms() - started), latencies


async def _drained(load: Load) -> None:
    """Waits until nothing is collecting or being answered, so that one measurement does not burden the next."""
    async with load.connections(1) as (connection,):
        for state in ("collecting", "answering"):
            for _ in range(BACKLOG_TRIES):
                _, body = await connection.ask(load.get(f"/v1/conversations?status={state}&limit=1"))
                page = json.loads(body)
                if not page["conversations"] and not page["cursor"]:
                    break
                await _clock.sleep(100)


async def _lateness(load: Load, names: list[str]) -> tuple[list[float], float]:
    """How late sampled turns were claimed, and which share of the sampled bursts became one turn."""
    step = max(1, len(names) // SAMPLED_TURNS)
    lateness, whole, sampled = [], 0, names[::step]
    async with load.connections(1) as (connection,):
        for name in sampled:
            _, body = await connection.ask(load.get(f"/v1/conversations/{ConversationKey.of(name)}"))
            turns = json.loads(body)["turns"]
            whole += len(turns) == 1
            for turn in turns:
                _, body = await connection.ask(load.get(f"/v1/turns/{turn['turnId']}"))
                lateness.append(float(json.loads(body)["latenessMs"]))
    return lateness, whole / len(sampled)


def _report_cpu(server: Process | None, before: float, messages: int, report: Report) -> None:
    if server is not None:
        report(Figure("  CPU for 1,000 messages, accepted and answered", (server.cpu_ms - before) / messages, "s"))


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
