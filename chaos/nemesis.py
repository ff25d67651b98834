"""What goes wrong, and when: processes die, stop and freeze; the store restarts; connections break."""

import asyncio
import random
import signal
import time
from collections.abc import Callable, Coroutine, Sequence

from chaos.fleet import Fleet, Process
from chaos.history import History
from chaos.stores import Setup
from harness.databases import Server
from harness.proxy import Proxy, Way

Fault = Callable[[], Coroutine[None, None, None]]


class Nemesis:
    """Draws faults by chance until its time is up. Everything it broke is whole again when `torment` returns."""

    def __init__(self, fleet: Fleet, setup: Setup, history: History, chance: random.Random, lease_s: float) -> None:
        self._fleet = fleet
        self._setup = setup
        self._history = history
        self._chance = chance
        self._lease_s = lease_s

    async def torment(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as faults:
            if self._setup.server is None:
                faults.create_task(self._one_after_the_other(self.lone_faults(), (0.05, 0.9), until))
            else:
                faults.create_task(self._side_by_side(self.process_faults(), (0.5, 3.0), until, faults))
                faults.create_task(self._one_after_the_other(self.store_faults(), (0.3, 3.0), until))

    async def _one_after_the_other(self, faults: Sequence[Fault], rest: tuple[float, float], until: float) -> None:
        while time.monotonic() < until:
            await self._chance.choice(faults)()
            await asyncio.sleep(self._chance.uniform(*rest))

    async def _side_by_side(
        self, faults: Sequence[Fault], rest: tuple[float, float], until: float, running: asyncio.TaskGroup
    ) -> None:
        while time.monotonic() < until:
            running.create_task(self._chance.choice(faults)())
            await asyncio.sleep(self._chance.uniform(*rest))

    def lone_faults(self) -> list[Fault]:
        """For a process that has nobody to take over: it is back before the next fault."""
        return [self._kill] * 9 + [self._stop]

    def process_faults(self) -> list[Fault]:
        return [self._kill_worker] * 4 + [self._kill_acceptor] * 2 + [self._pause_worker] * 3 + [self._stop] * 2

    def store_faults(self) -> list[Fault]:
        network = [self._cut, self._blackhole, self._one_way, self._delay, *[self._drop_replies] * 3]
        return [*network, *network, self._restart_store, self._kill_store, self._kill_store, self._sever]

    async def _kill(self) -> None:
        (process,) = self._fleet.processes
        await self._end("kill", process, signal.SIGKILL)

    async def _kill_worker(self) -> None:
        await self._end("kill worker", self._chance.choice(self._fleet.workers), signal.SIGKILL)

    async def _kill_acceptor(self) -> None:
        await self._end("kill acceptor", self._chance.choice(self._fleet.acceptors), signal.SIGKILL)

    async def _stop(self) -> None:
        await self._end("stop", self._chance.choice(self._fleet.processes), signal.SIGTERM)

    async def _end(self, kind: str, process: Process, how: signal.Signals) -> None:
        """It lasts until the process is back."""
        with self._history.fault(kind, process.name):
            await process.end(how)
            await process.ready()

    async def _pause_worker(self) -> None:
        process = self._chance.choice(self._fleet.workers)
        with self._history.fault("pause worker", process.name):
            await process.pause(self._lease_s * self._chance.uniform(1.2, 2.5))

    async def _restart_store(self) -> None:
        with self._history.fault("restart store", "store"):
            await asyncio.to_thread(self._server.stop)
            await asyncio.to_thread(self._server.start)

    async def _kill_store(self) -> None:
        with self._history.fault("kill store", "store"):
            await asyncio.to_thread(self._server.kill)
            await asyncio.sleep(self._chance.uniform(0, 1))
            await asyncio.to_thread(self._server.start)

    async def _sever(self) -> None:
        with self._history.fault("sever", "store"):
            await asyncio.to_thread(self._setup.sever)

    async def _cut(self) -> None:
        await self._on_the_way("cut", self._proxy.cut, self._chance.uniform(0.2, 2))

    async def _blackhole(self) -> None:
        await self._on_the_way("blackhole", self._proxy.blackhole, self._chance.uniform(0.5, 3))

    async def _one_way(self) -> None:
        lost: Way = self._chance.choice(("requests", "replies"))
        await self._on_the_way(f"lose {lost}", lambda: self._proxy.one_way(lost), self._chance.uniform(0.5, 2))

    async def _delay(self) -> None:
        ms = self._chance.randint(10, 200)
        await self._on_the_way("delay", lambda: self._proxy.delay(ms), self._chance.uniform(0.5, 3))

    async def _drop_replies(self) -> None:
        count = self._chance.randint(1, 8)
        await self._on_the_way("drop replies", lambda: self._proxy.drop_replies(count), self._chance.uniform(0.1, 1))

    async def _on_the_way(self, kind: str, begin: Callable[[], None], seconds: float) -> None:
        with self._history.fault(kind, "network"):
            begin()
            await asyncio.sleep(seconds)
            self._proxy.heal()

    @property
    def _proxy(self) -> Proxy:
        assert self._setup.proxy is not None
        return self._setup.proxy

    @property
    def _server(self) -> Server:
        assert self._setup.server is not None
        return self._setup.server
