"""What a handler may do with its turn while it works.

How arrivals are seen: a message that this process accepts for the conversation is shown as it comes. Where the rules
say "steer", other processes may accept some too, so the store is read instead: when word of one comes, from here or
from elsewhere, and once a second while somebody watches, in case that word was lost.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from turntake.buffer.store import HORIZON_MS
from turntake.claim.handler_limits import HandlerLimit
from turntake.claim.held_claim import HeldClaim
from turntake.claim.replying import Outbox
from turntake.deliver.turn import TurnControl
from turntake.observe.observer import Observer, Observers
from turntake.rules.message import Message
from turntake.rules.records import Claim
from turntake.rules.rules import Rules


class HandlerControl(TurnControl):
    """What a handler may do with its claim while it works."""

    __slots__ = ("_arrived", "_held", "_is_over", "_news", "_observers", "_outbox", "_rules", "_seen", "limit")

    def __init__(self, held: HeldClaim, outbox: Outbox, rules: Rules, observers: Observers) -> None:
        self._held = held
        self._outbox = outbox
        self._rules = rules
        self._observers = observers
        self._arrived: list[Message] = []
        self._seen = held.claim.turn.tail
        """The number of the latest message that was shown or absorbed."""
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
            self._news.clear()
            if self._is_steered and not self._is_over:
                await self._look()
            while self._arrived:
                message = self._arrived.pop(0)
                self._seen = max(self._seen, message.seq)
                yield message
            if not self._is_over and not self._news.is_set():
                await self._wait(self._news)

    async def absorb(self) -> Claim:
        before = self._held.claim.turn.tail
        claim = await self._held.absorb(self._rules)
        if claim.turn.tail > before:
            absorbed = tuple(message for message in claim.messages if message.seq > before)
            self._observers.tell(Observer.absorbed, claim, absorbed)
        self._seen = max(self._seen, claim.turn.tail)
        self._arrived = [message for message in self._arrived if message.seq > claim.turn.tail]
        return claim

    def arrived(self, message: Message) -> None:
        """A message came in: whoever watches sees it."""
        if not self._is_steered:
            self._arrived.append(message)
        self.tell()

    def close(self) -> None:
        """The handler is done: whoever still watches sees the end."""
        self._is_over = True
        self.tell()

    def tell(self) -> None:
        """Something may have come: whoever watches looks."""
        if self._news is not None:
            self._news.set()

    @property
    def _is_steered(self) -> bool:
        return self._rules.on_busy == "steer"

    async def _look(self) -> None:
        self._arrived = [message for message in await self._held.waiting() if message.seq > self._seen]

    async def _wait(self, news: asyncio.Event) -> None:
        if not self._is_steered:
            await news.wait()
            return
        with suppress(TimeoutError):
            async with self._held.clock.limit(HORIZON_MS):
                await news.wait()
