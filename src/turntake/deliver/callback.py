"""Replies of the generic channel to a URL of the operator's: one signed event a reply."""

from turntake.clock import Clock
from turntake.deliver.cloudevents import reply_ready
from turntake.deliver.http_call import Exchange
from turntake.deliver.outbound import Outbound
from turntake.platforms.replies import Recipient
from turntake.rules.key import ConversationKey

# Too slow, still busy with the first try, too early: each may be over by the next try.
PASSING = (408, 409, 425)


class Callback(Outbound):
    """POSTs `messages.reply.ready`. Without a URL it leads nowhere, and replies stay with their turns."""

    def __init__(
        self,
        url: str = "",
        *,
        channel: str = "generic",
        secrets: str = "",
        timeout_ms: int = 30_000,
        retry_ms: int = 5_000,
        clock: Clock | None = None,
    ) -> None:
        self._channel = channel
        self._exchange = (
            Exchange(url, "The callback", secrets=secrets, timeout_ms=timeout_ms, retry_ms=retry_ms, clock=clock)
            if url
            else None
        )

    def can_send(self, key: ConversationKey) -> bool:
        return self._exchange is not None and key.channel == self._channel

    async def send(self, to: Recipient, index: int, text: str) -> None:
        if self._exchange is None or not self.can_send(to.key):
            return
        event = reply_ready(to.key, to.turn_id, index, text)
        response = await self._exchange.post(event.id, event)
        if not 200 <= response.status < 300:
            raise self._exchange.error_in(response, PASSING)

    async def aclose(self) -> None:
        if self._exchange is not None:
            await self._exchange.aclose()
