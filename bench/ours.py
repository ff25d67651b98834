"""Our two sides: `python -m bench.ours client|worker STORE_URL PLAN OUT`."""

import asyncio
import sys
from pathlib import Path

from bench.bursts import SILENCE_MS, TEXT, Plan
from bench.side import Notes, now_ms, run_client, run_worker
from turntake import Rules, Turn, TurnTake
from turntake.http.server import new_loop, tune

RULES = Rules(silence_ms=SILENCE_MS, typing_inference_ms=0)


async def client(url: str, plan: Plan, out: Path) -> None:
    async with TurnTake(url, rules=RULES, role="accept") as turns:

        async def send(conversation: str, number: int) -> tuple[float, float]:
            sent_at = now_ms()
            await turns.receive(TEXT, conversation=conversation, id=str(number))
            return sent_at, now_ms()

        await run_client(plan, out, send)


async def worker(url: str, out: Path) -> None:
    notes = Notes(out)

    async def answer(turn: Turn) -> None:
        numbers = [int(message.id) for message in turn.messages]
        notes.handed(turn.conversation.conversation, numbers, turn.claim.turn.due.at)

    async with TurnTake(url, rules=RULES, role="work", agent=answer):
        await run_worker(notes)


def main(side: str, url: str, plan: str, out: str) -> None:
    tune()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(client(url, Plan.read(Path(plan)), Path(out)) if side == "client" else worker(url, Path(out)))


if __name__ == "__main__":
    main(*sys.argv[1:])
