"""Ada, who writes to a `TurnTake` whose turns are due at once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from turntake import ConversationKey, Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.rules.conversation import Conversation
from turntake.rules.records import TurnRecord
from turntake.rules.transitions import claim
from turntake.testing.clock import VirtualClock

ADA = ConversationKey.of("ada")
AT_ONCE = Rules(silence_ms=0, typing_inference_ms=0)


async def say(turns: TurnTake, *texts: str, to: str = "ada") -> None:
    """One message for each text, whose id is made of both names, so that the same text twice is a redelivery."""
    for text in texts:
        await turns.receive(text, conversation=to, id=f"{to}-{text}")


async def only_turn(turns: TurnTake) -> TurnRecord:
    """Ada's turn, of which there is one."""
    (record,) = await turns.store.history.turns(ADA, limit=10)
    return record


def taken_over(store: MemoryStore, clock: VirtualClock) -> Conversation:
    """Ada's conversation as it is once somebody else has claimed it."""
    return claim(store.model.conversations[ADA], ADA, 60_000, clock.now())


async def silent(turn: Turn) -> None:
    """An agent that has nothing to say."""
    return None


@asynccontextmanager
async def answered_turns(turns: TurnTake, count: int) -> AsyncIterator[None]:
    """Leaves once so many turns were answered."""
    async with turns.events.watch() as seen:
        yield
        while count:
            count -= (await seen.get()).kind in ("answered", "dead-lettered")
