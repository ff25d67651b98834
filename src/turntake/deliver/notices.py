"""What people are told that is no answer to a turn, such as that a message was rejected. Each is sent once, or not."""

import asyncio
import logging

from turntake.deliver.outbound import Outbound
from turntake.platforms.replies import Recipient
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message

log = logging.getLogger("turntake")

CLOSE_GRACE_MS = 3_000  # platforms answer in less than a second, and those who stop a service do not wait for long


class Notices:
    """Sends each in a task of its own: whoever accepts a message does not wait for a platform."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, key: ConversationKey, id: str, message: Message, text: str) -> None:
        """To whoever sent the message. `id` is what the notice is about: receivers know a repetition by it."""
        if text and self._outbound.can_send(key):
            task = asyncio.create_task(self._send(Recipient(key, id, (message,)), text))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Gives those that are on their way a moment to arrive."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_GRACE_MS / 1000)
            for task in late:
                task.cancel()

    async def _send(self, to: Recipient, text: str) -> None:
        try:
            for index, part in enumerate(self._outbound.parts(to.key, text)):
                await self._outbound.send(to, index, part)
        except Exception as error:
            facts = {"action": "notify", "conversation": str(to.key), "error": type(error).__name__}
            log.warning("A person could not be told that a message was rejected", extra=facts)
