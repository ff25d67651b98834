"""Testing an agent without waiting: virtual time. Run it: pytest examples/test_your_agent.py, or as a script."""

import asyncio

from turntake import ConversationKey, Turn, TurnTake
from turntake.testing.clock import VirtualClock


async def your_agent(turn: Turn) -> str:
    return turn.text.upper()


async def check() -> None:
    clock = VirtualClock()
    async with TurnTake("memory://", agent=your_agent, clock=clock) as turns:
        await turns.receive("hello", conversation="ada", id="m1")
        await clock.advance(500)
        await turns.receive("world", conversation="ada", id="m2")
        await clock.advance(60_000)
        (record,) = await turns.store.history.turns(ConversationKey.of("ada"), limit=5)
        assert record.turn is not None
        assert record.turn.progress.replies == ("HELLO\nWORLD",)
        print(f"a minute of chat, answered once: {record.turn.progress.replies}")


def test_a_burst_is_answered_once() -> None:
    asyncio.run(check())


if __name__ == "__main__":
    asyncio.run(check())
