"""What a noisy tenant costs a quiet one: `python -m bench.fairness [stores…]`.

How this works: a quiet tenant writes at an even rate, each message a turn of its own, first alone and then beside a
tenant that writes `--times` as much, which is more than the worker has slots for. Shown is how late the quiet tenant's
turns reached the handler after they were due, without and with the noise, and the difference at the 99th percentile;
and beside it the same where both are one tenant, whose turns wait in one line: that is what fairness saves.

A machine that is busy with other things makes all of them later, so look at the difference and run it when it is idle.
With `--slower 5` a second takes five, as if the machine were five times as fast.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.figures import quantile
from bench.servers import STORES
from bench.workers import SlowClock
from turntake import Rules, Turn, TurnTake

SLOTS = 20
# Twenty slots answer about a hundred turns a second, and the noise is twice that: its queue grows all the time.
HANDLER_MS = (100, 300)
QUIET_MS = 500
TIMES = 100
MEASURED_MS = 20_000
# Until the noise has filled every slot and a queue behind them.
RUN_UP_MS = 3_000


class Lateness(NamedTuple):
    """Of the quiet tenant's turns, in milliseconds; `waiting` is how many of the noise were due in the end."""

    p50: float
    p99: float
    turns: int
    waiting: int = 0


class Crowd:
    """People of one tenant, each of whom writes one message."""

    def __init__(self, turns: TurnTake, name: str, tenant: str, every_ms: float) -> None:
        self._turns = turns
        self._name = name
        self._tenant = tenant
        self._every_ms = every_ms
        self.sent = 0

    async def speak(self) -> None:
        clock = self._turns.clock
        start_at = clock.now()
        async with asyncio.TaskGroup() as sending:
            while True:
                await clock.sleep_until(start_at + int(self.sent * self._every_ms))
                name = f"{self._name}-{self.sent}"
                self.sent += 1
                sending.create_task(self._turns.receive("hello", conversation=name, id="1", tenant=self._tenant))


async def measured(url: str, tenants: tuple[str, str], times: int, duration_ms: int, slower: float) -> Lateness:
    """The quiet tenant's turns beside a noise of `times` as much; 0 is silence."""
    clock, random, late, noise = SlowClock(slower), Random(1), [], 0

    async def answer(turn: Turn) -> None:
        nonlocal noise
        if turn.conversation.conversation.startswith("quiet"):
            late.append(float(clock.now() - turn.messages[0].received_at))
        else:
            noise += 1
        await clock.sleep(random.randint(*HANDLER_MS))

    rules = Rules(enabled=False)
    async with TurnTake(url, rules=rules, agent=answer, clock=clock, concurrency=SLOTS, shutdown_ms=0) as turns:
        quiet = Crowd(turns, "quiet", tenants[0], QUIET_MS)
        noisy = Crowd(turns, "noisy", tenants[1], QUIET_MS / max(1, times))
        speaking = [asyncio.create_task(quiet.speak())]
        if times:
            speaking.append(asyncio.create_task(noisy.speak()))
        await clock.sleep(RUN_UP_MS)
        late.clear()
        await clock.sleep(duration_ms)
        for task in speaking:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    return Lateness(quantile(late, 0.5), quantile(late, 0.99), len(late), noisy.sent - noise)


async def measured_alone(store: str, tenants: tuple[str, str], times: int, options: argparse.Namespace) -> Lateness:
    """On a server that nobody used before."""
    with tempfile.TemporaryDirectory() as folder, STORES[store](Path(folder)) as server:
        return await measured(server.url, tenants, times, options.ms, options.slower)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser("python -m bench.fairness", description=__doc__)
    parser.add_argument("stores", nargs="*", default=list(STORES))
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--ms", type=int, default=MEASURED_MS)
    parser.add_argument("--slower", type=float, default=1)
    options = parser.parse_args(arguments)
    print(f"{'store':<12}{'noise':<14}{'p50 ms':>8}{'p99 ms':>8}{'more at p99':>13}{'turns':>7}{'noise due':>11}")
    for store in options.stores:
        alone = asyncio.run(measured_alone(store, ("quiet", "noisy"), 0, options))
        runs = [
            ("none", alone),
            ("of another", asyncio.run(measured_alone(store, ("quiet", "noisy"), options.times, options))),
            ("its own", asyncio.run(measured_alone(store, ("one", "one"), options.times, options))),
        ]
        for noise, found in runs:
            more = f"{found.p99 - alone.p99:+.0f}"
            figures = f"{found.p50:>8.0f}{found.p99:>8.0f}{more:>13}{found.turns:>7}{found.waiting:>11}"
            print(f"{store:<12}{noise:<14}{figures}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
