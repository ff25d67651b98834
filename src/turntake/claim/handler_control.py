"""What a handler may do with its turn while it works, and for how long it may work."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from turntake.claim.held_claim import HeldClaim
from turntake.claim.replying import Outbox
from turntake.clock import TimeLimit
from turntake.deliver.turn import TurnControl
from turntake.errors import TimedOut
from turntake.rules.message import Message

T = TypeVar("T")


class HandlerControl(TurnControl):
    """What a handler may do with its claim while it works."""

    __slots__ = ("_arrived", "_held", "_is_over", "_limit", "_news", "_outbox")

    def __init__(self, held: HeldClaim, outbox: Outbox) -> None:
        self._held = held
        self._outbox = outbox
        self._arrived: list[Message] = []
        self._is_over = False
        self._limit: TimeLimit | None = None
        self._news: asyncio.Event | None = None

    async def commit(self) -> None:
        await self._outbox.commit()

    async def reply(self, text: str) -> None:
        await self._outbox.reply(text)

    async def extend(self, duration_ms: int | None) -> None:
        duration_ms = max(duration_ms or 0, self._held.lease_ms)
        await self._held.extend(duration_ms)
        if self._limit is not None:
            self._limit.move(max(self._limit.at, self._held.clock.now() + duration_ms))

    async def within(self, duration_ms: int, delivery: Awaitable[T]) -> T:
        """The delivery's outcome. It gets so long, or as long as the handler asks for by `extend`. Raises TimedOut."""
        try:
            async with self._held.clock.limit(duration_ms) as self._limit:
                return await delivery
        except TimeoutError:
            # The handler may also raise a TimeoutError of its own, which is a failure like any other.
            if self._limit is None or not self._limit.has_expired:
                raise
            raise TimedOut(
                f"The handler was cancelled after {duration_ms} ms. Raise worker.handler_ms, or call `turn.extend` "
                "from a handler that needs longer; give the calls that it waits for a time limit of their own."
            ) from None

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
