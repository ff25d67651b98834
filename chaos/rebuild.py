"""The index of deadlines is gone while messages wait; the operator's command brings it back."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from chaos.fleet import Fleet
from chaos.history import History
from chaos.people import Person
from chaos.stores import Setup


async def lose_index(fleet: Fleet, setup: Setup, people: Sequence[Person], history: History) -> list[str]:
    """With no worker up, people write, the index is deleted and rebuilt. Returns what went wrong doing so."""
    with history.fault("wipe index", "store"):
        await asyncio.gather(*(worker.close(signal.SIGTERM) for worker in fleet.workers))
        for person in people:
            await person.say()
        await asyncio.to_thread(setup.wipe_index)
        troubles = await _rebuild(setup.url)
        for worker in fleet.workers:
            worker.open()
        await fleet.ready()
    return troubles


async def _rebuild(url: str) -> list[str]:
    doctor = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turntake", "doctor", "--rebuild", "--store", url),
        env={**os.environ, "NO_COLOR": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await doctor.communicate()
    line = next((line for line in said.decode().splitlines() if "entries" in line), "")
    print(f"  rebuild: {line.strip() or said.decode()[-500:]}", flush=True)
    return [] if line else ["doctor --rebuild mended nothing, although the index was gone"]
