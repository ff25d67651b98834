"""A storm of messages during the answer, on a real store and in real time: `python -m chaos.busy redis interrupt`.

A hundred people write eleven times each, at random moments, through two workers that share the store; each worker has
connections of its own, and hears of the other only through the store. `harness/storm_checker.py` judges the log.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from msgspec.structs import replace

from harness.databases import Postgres, Valkey
from harness.storm import SILENCE_MS, THINKING_MS, Storm, all_disturbed, two_workers
from harness.storm_checker import Line, broken
from turntake import Rules
from turntake.clock import SystemClock

PEOPLE, TIMES = 100, 10
BUSY = Rules(silence_ms=SILENCE_MS, typing_inference_ms=0, max_wait_ms=60_000, max_interrupts=TIMES)
MODES = {
    "interrupt": replace(BUSY, on_busy="interrupt"),
    "regenerate": replace(BUSY, on_stale="regenerate"),
    # What comes between the last look and the answer makes it stale.
    "steer": replace(BUSY, on_busy="steer", on_stale="regenerate"),
}


@contextmanager
def url_of(kind: str) -> Iterator[str]:
    """A store that nobody used before."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "sqlite":
            yield f"sqlite:///{folder}/turntake.db"
        else:
            with Valkey(Path(folder)) if kind == "redis" else Postgres(Path(folder)) as server:
                yield server.url


async def log_of(url: str, mode: str, seed: int) -> list[Line]:
    """Everybody writes again before an answer can have left, unless the machine is too busy to be on time."""
    clock, chance = SystemClock(), Random(seed)
    storm = Storm(clock, chance)
    agent = storm.steered if mode == "steer" else storm.think
    async with two_workers([url, url], storm, agent, MODES[mode], clock) as workers:
        await all_disturbed(workers, storm, PEOPLE, TIMES, THINKING_MS // 2)
        for _ in range(60):
            await clock.sleep(1_000)
            if sum(len(line.ids) for line in storm.log if line.kind == "sent") >= PEOPLE * (TIMES + 1):
                break
    return storm.log


def main(kind: str, mode: str, seed: str = "1") -> int:
    with url_of(kind) as url:
        log = asyncio.run(log_of(url, mode, int(seed)))
    faults = broken(log, most_runs=1 + TIMES, leaves_nothing_out=True)
    kinds = [line.kind for line in log]
    counts = ", ".join(f"{kinds.count(name)} {name}" for name in ("said", "began", "ended", "sent"))
    print(f"{kind} {mode}: {counts}; {len(faults)} broken", *faults, sep="\n  ")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
