"""A worker process of its own, whose answers take time, and which one message kills or holds up.

    python -m harness.dying_worker STORE_URL exit|block

Times are short, and keep the order that they have in life: an answer takes longer than the time until the process dies
of the poison, and a process that is held up is so for longer than a lease.
"""

import asyncio
import os
import sys
import time

from turntake import ConversationKey, Rules, Turn, TurnTake

LEASE_MS = 400
ANSWER_S = 0.15
DEATH_S = 0.1
BLOCK_S = 1.0


async def die(turn: Turn) -> str:
    await asyncio.sleep(DEATH_S if turn.text == "poison" else ANSWER_S)
    if turn.text == "poison":
        os._exit(1)
    return "fine"


async def block(turn: Turn) -> str:
    if turn.text == "poison":
        time.sleep(BLOCK_S)  # noqa: ASYNC251 - that is the mistake
    await asyncio.sleep(ANSWER_S)
    return "fine"


async def work(url: str, mistake: str) -> None:
    agent = die if mistake == "exit" else block
    async with TurnTake(url, rules=Rules(silence_ms=0, typing_inference_ms=0), agent=agent, lease_ms=LEASE_MS):
        await asyncio.Event().wait()


async def end_of(turns: TurnTake, person: str) -> str:
    """How the only turn of a person ended, or how far it is."""
    records = await turns.store.history.turns(ConversationKey.of(person), 10)
    return records[0].status if records else ""


async def until_ended(turns: TurnTake, *people: str) -> None:
    """Returns once each of them was answered or is a dead letter. Only the store can tell, so it is asked."""
    async with asyncio.timeout(150):
        for person in people:
            while await end_of(turns, person) not in ("answered", "dead"):  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2]))
