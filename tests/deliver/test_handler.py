"""An agent that is a plain function."""

import asyncio
import threading
from contextvars import ContextVar

from harness.turns import AT_ONCE, answered_turns, say
from turntake import Turn, TurnTake


async def test_a_plain_function_runs_beside_the_event_loop() -> None:
    """Real time: a blocking handler runs in a thread, so another conversation is answered meanwhile."""
    blocked, free = threading.Event(), threading.Event()

    def answer(turn: Turn) -> str:
        if turn.text == "block":
            free.wait(10)
            blocked.set()
        else:
            free.set()
        return "done"

    async with TurnTake("memory://", rules=AT_ONCE, agent=answer) as turns:
        await say(turns, "block", to="ada")
        await say(turns, "go", to="bob")
        await asyncio.to_thread(blocked.wait, 10)
    assert blocked.is_set()


async def test_a_plain_handler_sees_the_context_it_was_called_in() -> None:
    seen: list[str] = []
    tenant: ContextVar[str] = ContextVar("tenant", default="lost")
    tenant.set("kept")

    def answer(turn: Turn) -> None:
        seen.append(tenant.get())

    turns = TurnTake("memory://", rules=AT_ONCE, agent=answer)
    async with turns, answered_turns(turns, 1):
        await turns.receive("hi", conversation="ada", id="m1")
    assert seen == ["kept"]
