"""What goes wrong, and when: processes die, stop, freeze and take their clocks for right; stores and networks fail;
the agent and the platform are away; and now and then a message kills whoever answers it."""

import asyncio
import random
import signal
import time
from collections.abc import Iterator, Sequence

from chaos.fleet import Fleet, Process
from chaos.history import History
from chaos.store_faults import FaultCall, store_faults
from chaos.stores import Setup
from harness.proxy import Proxy


class Ways:
    """The ways from the processes to the agent, and to the platform that takes replies."""

    def __init__(self, agent: Proxy, platform: Proxy) -> None:
        self.agent = agent
        self.platform = platform


class Nemesis:
    """Draws faults by chance until its time is up. Everything it broke is whole again when `torment` returns."""

    def __init__(
        self, fleet: Fleet, setup: Setup, ways: Ways, history: History, chance: random.Random, lease_s: float
    ) -> None:
        self._fleet = fleet
        self._setup = setup
        self._ways = ways
        self._history = history
        self._chance = chance
        self._lease_s = lease_s
        self._poisoned: set[asyncio.Task[None]] = set()

    async def torment(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        store = store_faults(self._setup, self._history, self._chance)
        async with asyncio.TaskGroup() as faults:
            faults.create_task(self._one_after_the_other(self.outside_faults(), (2.0, 6.0), until))
            if store is None:
                faults.create_task(self._one_after_the_other(self.lone_faults(), (0.3, 2.0), until))
            else:
                faults.create_task(self._side_by_side(self.process_faults(), (0.5, 3.0), until, faults))
                faults.create_task(self._one_after_the_other(store.deck(), (0.3, 3.0), until))

    async def ended(self) -> None:
        """Returns once whoever was poisoned is back."""
        while self._poisoned:
            await asyncio.wait(self._poisoned)

    def poison(self, port: int) -> None:
        """Whoever speaks to the agent from there dies of what it said."""
        origin = self._ways.agent.origin(port)
        victim = next((p for p in self._fleet.workers if origin is not None and p.speaks_from(origin)), None)
        if victim is not None:
            task = asyncio.create_task(self._end("poison", victim, signal.SIGKILL))
            self._poisoned.add(task)
            task.add_done_callback(self._poisoned.discard)

    def lone_faults(self) -> list[FaultCall]:
        """For a process that has nobody to take over: it is back before the next fault."""
        return [*[self._kill] * 6, self._stop, self._step_clock]

    def process_faults(self) -> list[FaultCall]:
        own = [self._kill_worker] * 4 + [self._kill_acceptor] * 2 + [self._pause_worker] * 3 + [self._stop] * 2
        return [*own, self._step_clock]

    def outside_faults(self) -> list[FaultCall]:
        return [self._agent_away, self._platform_away]

    async def _one_after_the_other(self, faults: Sequence[FaultCall], rest: tuple[float, float], until: float) -> None:
        for fault in self._drawn(faults):
            if time.monotonic() >= until:
                return
            await fault()
            await asyncio.sleep(self._chance.uniform(*rest))

    async def _side_by_side(
        self, faults: Sequence[FaultCall], rest: tuple[float, float], until: float, running: asyncio.TaskGroup
    ) -> None:
        for fault in self._drawn(faults):
            if time.monotonic() >= until:
                return
            running.create_task(fault())
            await asyncio.sleep(self._chance.uniform(*rest))

    def _drawn(self, faults: Sequence[FaultCall]) -> Iterator[FaultCall]:
        """As cards from a deck that is shuffled again when it is through: a short run sees many kinds."""
        while True:
            yield from self._chance.sample(faults, len(faults))

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
            await process.restart(how)

    async def _pause_worker(self) -> None:
        process = self._chance.choice(self._fleet.workers)
        with self._history.fault("pause worker", process.name):
            await process.pause(self._lease_s * self._chance.uniform(1.2, 2.5))

    async def _step_clock(self) -> None:
        """A process starts while its machine's clock is wrong by seconds, and again once that was put right."""
        process = self._chance.choice(self._fleet.processes)
        kind = "step a process's clock" if self._setup.has_clock else "step the store's clock"
        with self._history.fault(kind, process.name):
            process.set_clock(self._chance.choice((-1, 1)) * self._chance.uniform(1, 4))
            await process.restart(signal.SIGTERM)
            await asyncio.sleep(self._chance.uniform(0, 1))
            process.set_clock(0)
            await process.restart(signal.SIGTERM)

    async def _agent_away(self) -> None:
        await self._away("agent away", "agent", self._ways.agent)

    async def _platform_away(self) -> None:
        await self._away("platform away", "platform", self._ways.platform)

    async def _away(self, kind: str, target: str, way: Proxy) -> None:
        """Connections are refused, and those that there were are reset."""
        with self._history.fault(kind, target):
            way.cut()
            await asyncio.sleep(self._chance.uniform(2, 6))
            way.heal()
