"""What just happened in this process, for whoever watches. A watcher that falls behind misses events, never slows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from turntake.rules.key import ConversationKey

Kind = Literal[
    "buffered", "activity", "due", "claimed", "answered", "retrying", "failed", "interrupted", "dead-lettered"
]
QUEUE_LENGTH = 1_000


class Event(msgspec.Struct, frozen=True):
    """One thing that happened to a conversation. It carries ids, times and counts; replies are its only words."""

    kind: Kind
    at: int
    key: ConversationKey
    turn_id: str = ""
    facts: dict[str, Any] = {}


class Events:
    """Publishing costs next to nothing while nobody watches."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Queue[Event]] = set()

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def publish(self, event: Event) -> None:
        for watcher in self._watchers:
            if not watcher.full():
                watcher.put_nowait(event)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator["asyncio.Queue[Event]"]:
        """A queue of everything from now on."""
        queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE_LENGTH)
        self._watchers.add(queue)
        try:
            yield queue
        finally:
            self._watchers.discard(queue)
