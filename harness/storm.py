"""People who write again and again while they are being answered, through two workers that share a store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random

from harness.storm_checker import Line
from turntake import ConversationKey, Rules, Turn, TurnTake
from turntake.buffer.store import Store
from turntake.clock import Clock
from turntake.deliver.handler import Handler
from turntake.deliver.outbound import Outbound
from turntake.platforms.replies import Recipient

SILENCE_MS = 200
THINKING_MS = 1_000


class Storm(Outbound):
    """Keeps the log. A reply names the run that made it and the messages that it answers."""

    def __init__(self, clock: Clock, chance: Random) -> None:
        self.log: list[Line] = []
        self._clock = clock
        self._chance = chance
        self._runs = 0

    def can_send(self, key: ConversationKey) -> bool:
        return True

    async def send(self, to: Recipient, index: int, text: str) -> str:
        run, _, ids = text.partition(" ")
        self.log.append(Line("sent", to.key.conversation, tuple(ids.split()), int(run)))
        return ""

    async def think(self, turn: Turn) -> str:
        """An agent that is interrupted, or finds out at the end that its answer is not wanted."""
        run = self._begin(turn)
        await self._clock.sleep(THINKING_MS)
        return self._answer(turn, run)

    async def steered(self, turn: Turn) -> str:
        """An agent that takes in what comes, until nothing has come for a while. The first attempt may fail."""
        run = self._begin(turn)
        await self._wait_for_news(turn)
        while await turn.absorb():
            if turn.attempt == 1 and self._chance.random() < 0.02:
                raise RuntimeError("the model is overloaded")
            await self._wait_for_news(turn)
        return self._answer(turn, run)

    async def disturb(self, workers: Sequence[TurnTake], person: str, times: int, most_ms: int) -> None:
        """The person writes, and then so many times more, each time before the answer can have left."""
        for number in range(times + 1):
            id = f"{person}-{number}"
            turns = self._chance.choice(workers)
            receipt = await turns.receive(id, conversation=person, id=id)
            kind = "said" if receipt.status == "buffered" else receipt.status
            self.log.append(Line(kind, person, (id,)))
            await self._clock.sleep(self._chance.randrange(most_ms))

    def _begin(self, turn: Turn) -> int:
        self._runs += 1
        self.log.append(Line("began", turn.conversation.conversation, _ids(turn), self._runs))
        return self._runs

    def _answer(self, turn: Turn, run: int) -> str:
        self.log.append(Line("ended", turn.conversation.conversation, _ids(turn), run))
        return f"{run} {' '.join(_ids(turn))}"

    async def _wait_for_news(self, turn: Turn) -> None:
        with suppress(TimeoutError):
            async with self._clock.limit(THINKING_MS):
                async for _ in turn.arrivals():
                    return


@asynccontextmanager
async def two_workers(
    stores: Sequence[Store | str], storm: Storm, agent: Handler, rules: Rules, clock: Clock
) -> AsyncIterator[list[TurnTake]]:
    """Both claim what is due, and people reach either of them."""
    first, second = (TurnTake(store, rules=rules, agent=agent, outbound=storm, clock=clock) for store in stores)
    async with first, second:
        yield [first, second]


async def all_disturbed(workers: Sequence[TurnTake], storm: Storm, people: int, times: int, most_ms: int) -> None:
    """Returns once the last of them has written for the last time."""
    await asyncio.gather(*(storm.disturb(workers, f"p{number}", times, most_ms) for number in range(people)))


def _ids(turn: Turn) -> tuple[str, ...]:
    return tuple(message.id for message in turn.messages)
