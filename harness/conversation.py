"""A person and a running TurnTake, for tests that go from a message to what became of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from turntake import ConversationKey, Message, Rules, TurnTake
from turntake.buffer.store import Store
from turntake.clock import SystemClock
from turntake.deliver.handler import Handler
from turntake.deliver.outbound import Outbound
from turntake.deliver.sink import Sink
from turntake.deliver.turn import Turn, TurnControl
from turntake.observe.stream import Happening
from turntake.rules.conversation import SealedTurn, Touch
from turntake.rules.deadline import Deadline, Decision
from turntake.rules.records import Claim, Letter, TurnRecord

AT_ONCE = Rules(silence_ms=0, typing_inference_ms=0)
ADA = ConversationKey.of("ada")
ENDS = ("answered", "dead-lettered")


@dataclass
class Talk:
    """What Ada says, and what is seen of it."""

    turns: TurnTake
    seen: "asyncio.Queue[Happening]"

    async def say(self, text: str) -> None:
        await self.turns.receive(text, conversation="ada", id=text, sender="Ada")

    async def until(self, *kinds: str) -> Happening:
        """The next event of one of these kinds."""
        while True:
            event = await self.seen.get()
            if event.kind in kinds:
                return event

    async def hurry(self) -> None:
        """What waits for its next attempt need not."""
        await self.turns.touch(ADA, Touch("flush"))

    async def outcome(self) -> TurnRecord:
        """The next turn that ends, as the history has it; retries on the way are hurried."""
        while (event := await self.until(*ENDS, "failed", "retrying")).kind not in ENDS:
            await self.hurry()
        return await self.record(event.turn_id)

    async def record(self, turn_id: str) -> TurnRecord:
        record = await self.turns.store.history.turn(turn_id)
        assert record is not None
        return record

    async def letter(self) -> Letter:
        """The only dead letter."""
        (letter,) = (await self.turns.store.letters.list(10)).items
        return letter


@asynccontextmanager
async def talking(
    agent: Sink | Handler,
    store: str | Store = "memory://",
    rules: Rules = AT_ONCE,
    outbound: Outbound | None = None,
    **options: Any,
) -> AsyncIterator[Talk]:
    """A TurnTake with this agent. The agent and the outbound are closed at the end."""
    turns = TurnTake(store, agent=agent, rules=rules, outbound=outbound, shutdown_ms=0, **options)
    try:
        async with turns, turns.events.watch() as seen:
            yield Talk(turns, seen)
    finally:
        for part in (agent, outbound):
            if isinstance(part, Sink | Outbound):
                await part.aclose()


class NoControl(TurnControl):
    """For turns that nobody holds."""

    async def commit(self) -> None: ...

    async def reply(self, text: str) -> None: ...

    async def extend(self, duration_ms: int | None) -> None: ...

    async def absorb(self) -> Claim:
        raise NotImplementedError

    def arrivals(self) -> AsyncIterator[Message]:
        raise NotImplementedError


def a_turn(*messages: Message, key: ConversationKey = ADA, attempt: int = 1, agent: str = "") -> Turn:
    """A turn of these messages, or of one that says `hello`, sealed a second after the last arrived."""
    messages = messages or (Message(id="m1", text="hello", sender="Ada", seq=1, received_at=1_700_000_000_000),)
    last_at = max(message.received_at for message in messages)
    sealed = SealedTurn(
        id="turn_1",
        head=1,
        tail=len(messages),
        due=Deadline(last_at + 1_000, "silence"),
        claimed_at=last_at + 1_001,
        last_at=last_at,
        due_at=SystemClock().now(),
        decisions=(Decision(last_at, last_at + 1_000, "silence"),),
        attempt=attempt,
        agent=agent,
    )
    return Turn(Claim(key, attempt, sealed, messages), NoControl())
