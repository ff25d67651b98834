"""Tells agents that the person interrupted: those that answer at this moment, and those that said they would later."""

import asyncio
import logging

from turntake.deliver.sink import Sink
from turntake.rules.key import ConversationKey
from turntake.rules.records import Claim

log = logging.getLogger("turntake")

# Of turns whose agents said that they would complete them. One that others complete is only dropped when its
# conversation is claimed again, so there is an end to how many are remembered; the oldest are done by then.
MOST_PROMISED = 10_000


class Cancelling:
    """Remembers who promised to complete a turn, and tells agents, each in a task of its own."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._is_needed = type(sink).cancel is not Sink.cancel
        self._promised: dict[ConversationKey, Claim] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def promised(self, claim: Claim) -> None:
        """The agent will complete the turn later: until then somebody may have to tell it."""
        if not self._is_needed:
            return
        if len(self._promised) >= MOST_PROMISED:
            del self._promised[next(iter(self._promised))]
        self._promised[claim.key] = claim

    def is_over(self, key: ConversationKey) -> None:
        """Nobody has to be told about this conversation any more."""
        self._promised.pop(key, None)

    def interrupted(self, key: ConversationKey, turn_id: str, epoch: int | None, running: Claim | None) -> None:
        """Tells the agent that has this turn: the one that runs here, or the one that promised to complete it."""
        claim = (running or self._promised.get(key)) if self._is_needed else None
        if claim is not None and claim.turn.id == turn_id and epoch in (None, claim.epoch):
            self._promised.pop(key, None)
            task = asyncio.create_task(self._tell(claim))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _tell(self, claim: Claim) -> None:
        try:
            await self._sink.cancel(claim)
        except Exception as error:
            facts = {"action": "cancel", "conversation": str(claim.key), "turn": claim.turn.id}
            log.warning("An agent could not be told of an interruption", extra=facts | {"error": type(error).__name__})
