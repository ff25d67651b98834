"""What a handler may do with its turn while it works."""

import asyncio
from collections.abc import AsyncIterator

from turntake.claim.handler_limits import HandlerLimit
from turntake.claim.held_claim import HeldClaim
from turntake.claim.replying import Outbox
from turntake.deliver.turn import TurnControl
from turntake.rules.message import Message


class HandlerControl(TurnControl):
    """What a handler may do with its claim while it works."""

    __slots__ = ("_arrived", "_held", "_is_over", "_news", "_outbox", "limit")

    def __init__(self, held: HeldClaim, outbox: Outbox) -> None:
        self._held = held
        self._outbox = outbox
        self._arrived: list[Message] = []
        self._is_over = False
        self.limit: HandlerLimit | None = None
        """When the handler must have ended, if it has a limit."""
        self._news: asyncio.Event | None = None

    async def commit(self) -> None:
        await self._outbox.commit()

    async def reply(self, text: str) -> None:
        await self._outbox.reply(text)

    async def extend(self, duration_ms: int | None) -> None:
        duration_ms = max(duration_ms or 0, self._held.lease_ms)
        await self._held.extend(duration_ms)
        if self.limit is not None:
            self.limit.at = max(self.limit.at, self._held.clock.now() + duration_ms)

    async def arrivals(self) -> AsyncIterator[Message]:
        # Few handlers watch, so only those pay for an event.
        self._news = self._news or asyncio.Event()
        while self._arrived or not self._is_over:
            while self._arrived:
                yield self._arrived.pop(0)
            self._news.clear()
            if not self._is_over:
                await self._news.wait()

    def arrived(self, message: Message) -> None:
        """A message came in: whoever watches sees it."""
        self._arrived.append(message)
        self._tell()

    def close(self) -> None:
        """The handler is done: whoever still watches sees the end."""
        self._is_over = True
        self._tell()

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()
