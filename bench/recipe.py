"""The recipe one finds in answers and articles: push, sleep, see whether one was the last. `client|worker URL PLAN OUT`

Each message sleeps exactly as long as the silence, in the process that took it; that process hands over too, so the
worker only waits. Nothing survives this process: it is here for scale.
"""

import asyncio
import json
import sys
from pathlib import Path

from redis.asyncio import Redis

from bench.bursts import SILENCE_MS, TEXT, Plan
from bench.side import Notes, now_ms, run_client, run_worker
from turntake.http.server import new_loop, tune

CONNECTIONS = 50


class Recipe:
    """A list of messages and a count for each conversation."""

    def __init__(self, redis: "Redis", notes: Notes) -> None:
        self._redis = redis
        self._notes = notes
        self._sleepers: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def send(self, conversation: str, number: int) -> tuple[float, float]:
        sent_at = now_ms()
        async with self._free:
            count = await self._redis.rpush(conversation, json.dumps([number, TEXT]))
        sleeper = asyncio.create_task(self._sleep(conversation, count, sent_at + SILENCE_MS))
        self._sleepers.add(sleeper)
        sleeper.add_done_callback(self._sleepers.discard)
        return sent_at, now_ms()

    async def _sleep(self, conversation: str, count: int, due_at: float) -> None:
        await asyncio.sleep(max(0.0, due_at - now_ms()) / 1000)
        async with self._free:
            if await self._redis.llen(conversation) != count:
                return
            async with self._redis.pipeline(transaction=True) as both:
                both.lrange(conversation, 0, -1)
                both.delete(conversation)
                messages, _ = await both.execute()
        if messages:
            self._notes.handed(conversation, [json.loads(message)[0] for message in messages], due_at)


async def client(url: str, plan: Plan, out: Path) -> None:
    notes = Notes(out.with_name("handed.jsonl"))
    async with Redis.from_url(url) as redis, notes.kept():
        await run_client(plan, out, Recipe(redis, notes).send)


def main(side: str, url: str, plan: str, out: str) -> None:
    tune()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(client(url, Plan.read(Path(plan)), Path(out)) if side == "client" else run_worker(Notes(Path(out))))


if __name__ == "__main__":
    main(*sys.argv[1:])
