"""What a message and a turn cost while few and while many conversations wait."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter, process_time

from bench.bursts import TEXT
from bench.servers import STORES, Server
from turntake import Rules
from turntake.buffer.open import open_store
from turntake.buffer.store import Store
from turntake.clock import SystemClock
from turntake.rules.conversation import Answered
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Claim

PATIENT = Rules(silence_ms=3_600_000, typing_inference_ms=0, max_wait_ms=7_200_000, max_messages=1_000, capacity=1_000)
HASTY = Rules(silence_ms=1, typing_inference_ms=0)
FILL = 500
AT_ONCE = 100
TALKERS = 1_000
ORDER = 1  # the seed: every crowd talks in the same order
CLAIMED = 100
LEASE_MS = 60_000
SLICES = 10
REPORT_EVERY = 100_000


@dataclass(slots=True)
class Cost:
    """Of `count` steps: seconds that passed, CPU seconds of this process and the store server together, and what this
    process wrote to files, which is the same on a machine that is busy with other work."""

    count: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    written: int = 0

    @property
    def elapsed_us(self) -> float:
        return 1e6 * self.elapsed_s / self.count

    @property
    def cpu_us(self) -> float:
        return 1e6 * self.cpu_s / self.count

    @property
    def written_bytes(self) -> float:
        return self.written / self.count


class Crowd:
    """So many conversations, all waiting, in a store of their own."""

    def __init__(self, size: int, store: Store, server: Server) -> None:
        self.size = size
        self.append = Cost()
        self.claim = Cost()
        self.settle = Cost()
        self._store = store
        self._server = server
        self._spoken = 0
        self._order = Random(ORDER)
        self._talkers = list(range(TALKERS))

    async def gather(self) -> None:
        """Everybody says one thing, and waits."""
        before = self._server.stored_bytes()
        for first in range(0, self.size, FILL):
            names = range(first, min(self.size, first + FILL))
            await self._store.append([said(f"w{n}", "first", PATIENT) for n in names])
            if first % REPORT_EVERY == 0 and first:
                print(f"    {first} of {self.size} wait", flush=True)
        self._server.calm()
        self.bytes_each = (self._server.stored_bytes() - before) / self.size

    async def talk(self, count: int) -> None:
        """`count` times one of those who wait says one thing more, a call each, so many calls at once.

        In every crowd as many go on talking, spread over all of it: their buffers grow alike. Each round they do so in
        another order, since people who talk at the same time are no neighbours, in a small crowd either.
        """
        numbers = iter(range(self._spoken, self._spoken + count))
        self._spoken += count
        async with self._costing(self.append, count), asyncio.TaskGroup() as callers:
            for _ in range(AT_ONCE):
                callers.create_task(self._speak(numbers))

    async def answer(self, count: int) -> None:
        """`count` others fall due, and are claimed and answered; only these two steps are counted."""
        await self._store.append([said(f"d{self._spoken}-{n}", "only", HASTY) for n in range(count)])
        await asyncio.sleep(0.05)
        claims: list[Claim] = []
        async with self._costing(self.claim, count):
            while len(claims) < count and (found := await self._store.claim(CLAIMED, LEASE_MS)):
                claims += found
        if len(claims) != count:
            raise RuntimeError(f"{len(claims)} of {count} turns were claimed")
        async with self._costing(self.settle, count):
            await asyncio.gather(*(self._store.settle(claim, Answered(())) for claim in claims))

    async def _speak(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            if number % TALKERS == 0:
                self._order.shuffle(self._talkers)
            name = f"w{self._talkers[number % TALKERS] * max(1, self.size // TALKERS) % self.size}"
            await self._store.append([said(name, f"m{number}", PATIENT)])

    @asynccontextmanager
    async def _costing(self, cost: Cost, count: int) -> AsyncIterator[None]:
        started, own, theirs, written = perf_counter(), process_time(), self._server.cpu_s(), self._server.written()
        yield
        cost.count += count
        cost.elapsed_s += perf_counter() - started
        cost.cpu_s += process_time() - own + self._server.cpu_s() - theirs
        cost.written += self._server.written() - written


async def waiting(store: str, sizes: list[int], steps: int) -> list[Crowd]:
    """The crowds, measured by turns, so that all share whatever else the machine does."""
    crowds = []
    async with AsyncExitStack() as stack:
        for size in sizes:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turntake-bench-")))
            server = stack.enter_context(STORES[store](folder))
            opened = await stack.enter_async_context(open_store(server.url, SystemClock()))
            crowds.append(Crowd(size, opened, server))
            await crowds[-1].gather()
        for _ in range(SLICES):
            for crowd in crowds:
                await crowd.talk(steps // SLICES)
                await crowd.answer(steps // SLICES)
    return crowds


def said(conversation: str, message_id: str, rules: Rules) -> Append:
    return Append(ConversationKey.of(conversation), Message(id=message_id, text=TEXT), rules)
