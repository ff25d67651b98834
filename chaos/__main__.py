"""`python -m chaos [--kills 50] [--people 12] [--seed N]`"""

import argparse
import asyncio
import os
import random
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from chaos.history import History, Limits, violations
from chaos.outside import Outside, person

LEASE_MS = 1_000
MAX_WAIT_MS = 1_000
SLACK = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--people", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    return asyncio.run(run(options.kills, options.people, options.seed))


async def run(kills: int, people: int, seed: int) -> int:
    chance, history = random.Random(seed), History()
    outside = Outside(history, random.Random(seed + 1))
    outside_port, port = free_port(), free_port()
    world = outside.server(outside_port)
    serving = asyncio.create_task(world.serve())
    with tempfile.TemporaryDirectory(prefix="turntake-chaos-") as folder:
        server = Server(Path(folder), port, outside_port)
        try:
            await server.start()
            started = time.monotonic()
            await torment(server, history, kills, people, chance)
            outside.is_calm = True
            drained = await drain(server, history)
        finally:
            await server.end(signal.SIGKILL)
            world.should_exit = True
            await serving
    found = violations(history, Limits(MAX_WAIT_MS / 1000, LEASE_MS / 1000, SLACK))
    if not drained:
        found.append("not drained: conversations were still open when the time was up")
    redelivered = len(history.hand_overs) - len({call.turn_id for call in history.hand_overs})
    print(
        f"seed {seed}: {kills} kills in {time.monotonic() - started:.0f} s, "
        f"{len(history.acknowledged)} messages acknowledged, {len({c.turn_id for c in history.hand_overs})} turns, "
        f"{redelivered} handed over again, {len(history.replies)} replies, {len(found)} promises broken"
    )
    for line in found[:20]:
        print(f"  {line}")
    return 1 if found else 0


async def torment(server: "Server", history: History, kills: int, people: int, chance: random.Random) -> None:
    """People talk while the server is killed at random moments, `kills` times, and now and then stopped politely."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as talking:
        for number in range(people):
            talking.create_task(person(f"p{number}", server.url, history, random.Random(chance.random()), stop))
        for kill in range(kills):
            await asyncio.sleep(chance.uniform(0.05, 0.9))
            await server.end(signal.SIGKILL)
            await server.start()
            history.restarts.append(time.monotonic())
            if kill % 10 == 9:
                await server.end(signal.SIGTERM)
                await server.start()
                history.restarts.append(time.monotonic())
                print(f"  {kill + 1} kills, {len(history.acknowledged)} messages acknowledged", flush=True)
        stop.set()


async def drain(server: "Server", history: History) -> bool:
    """Waits until nothing is open any more; dead letters are sent again, since nothing may end there unseen."""
    deadline = time.monotonic() + 4 * (LEASE_MS + MAX_WAIT_MS) / 1000 + 10
    async with httpx2.AsyncClient(base_url=server.url, timeout=5) as client:
        while time.monotonic() < deadline:
            letters = (await client.get("/v1/dead-letters")).json()["deadLetters"]
            for letter in letters:
                await client.post(f"/v1/dead-letters/{letter['id']}/retry")
            is_open = letters or [
                conversation
                for state in ("collecting", "answering", "replying")
                for conversation in (await client.get("/v1/conversations", params={"status": state})).json()[
                    "conversations"
                ]
            ]
            if not is_open:
                return True
            await asyncio.sleep(0.1)
    return False


class Server:
    """`turntake serve` as its own process, on one SQLite file."""

    def __init__(self, folder: Path, port: int, outside_port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "server.log"
        self._arguments = [sys.executable, "-m", "turntake", "serve", "--port", str(port)]
        self._environment = os.environ | {
            "TURNTAKE_STORE": f"sqlite:///{folder / 'chaos.db'}",
            "TURNTAKE_AGENT": f"http://127.0.0.1:{outside_port}/agent",
            "TURNTAKE_GENERIC_CALLBACK_URL": f"http://127.0.0.1:{outside_port}/channel",
            "TURNTAKE_WORKER_LEASE_MS": str(LEASE_MS),
            "TURNTAKE_RULES_SILENCE_MS": "100",
            "TURNTAKE_RULES_TYPING_INFERENCE_MS": "150",
            "TURNTAKE_RULES_MAX_WAIT_MS": str(MAX_WAIT_MS),
            "TURNTAKE_RULES_MAX_ATTEMPTS": "20",
        }

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._arguments, env=self._environment, stdout=log, stderr=log
            )
        async with httpx2.AsyncClient(timeout=1) as client:
            for _ in range(500):
                if self._process.returncode is not None:
                    raise RuntimeError(f"the server did not start:\n{self._log.read_text()[-2000:]}")
                try:
                    if (await client.get(f"{self.url}/readyz")).status_code == 200:
                        return
                except httpx2.HTTPError:
                    await asyncio.sleep(0.02)
        raise RuntimeError("the server did not become ready")

    async def end(self, how: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(how)
        await self._process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
