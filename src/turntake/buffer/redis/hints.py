"""Hints by PUBLISH and SUBSCRIBE."""

import logging
from collections.abc import AsyncIterator

from turntake.buffer.engine.hints import HintChannel, read_hint
from turntake.buffer.redis.swap import encode_hint
from turntake.buffer.redis.url import UNREACHABLE, Client, unavailable_on_error
from turntake.buffer.store import Hint
from turntake.clock import Clock

log = logging.getLogger("turntake")

RECONNECT_MS = 1_000  # the horizon: until then workers look by themselves, and lose nothing


class RedisHints(HintChannel):
    """`channel` is the name that hints are published under."""

    def __init__(self, client: Client, channel: str, clock: Clock) -> None:
        self.channel = channel
        self._client = client
        self._clock = clock

    async def publish(self, hint: Hint) -> None:
        with unavailable_on_error:
            await self._client.publish(self.channel, encode_hint(hint))

    async def listen(self) -> AsyncIterator[Hint]:
        """One subscription for as long as somebody listens; while it is cut off, the horizon has to do."""
        while True:
            try:
                async with self._client.pubsub() as subscription:
                    await subscription.subscribe(self.channel)
                    async for word in subscription.listen():
                        hint = read_hint(word["data"]) if word["type"] == "message" else None
                        if hint is not None:
                            yield hint
            except UNREACHABLE as error:
                log.info("Hints stopped; looking every second", extra={"action": "hint", "error": type(error).__name__})
            await self._clock.sleep(RECONNECT_MS)
