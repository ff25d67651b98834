"""Replies to a URL of the operator's, for a channel without a platform behind it: one signed event per reply."""

from turntake.clock import Clock
from turntake.deliver.cloudevents import reply_ready
from turntake.deliver.outbound import NoOutbound, Outbound
from turntake.deliver.signed_endpoint import SignedEndpoint
from turntake.errors import Away, CallFailed, SendFailed
from turntake.platforms.replies import Recipient
from turntake.rules.key import DEFAULT_CHANNEL, ConversationKey

# Too slow, still busy with the first try, too early: each may have passed by the next try.
PASSING = (408, 409, 425)


class Callback(Outbound):
    """POSTs `messages.reply.ready`; conversations of other channels, and all without a URL, go `elsewhere`."""

    def __init__(
        self,
        url: str = "",
        elsewhere: Outbound | None = None,
        *,
        channel: str = DEFAULT_CHANNEL,
        secrets: str = "",
        timeout_ms: int = 30_000,
        retry_ms: int = 5_000,
        clock: Clock | None = None,
    ) -> None:
        """`retry_ms` is the pause after a 429 or 503 that does not say how long to wait."""
        self._channel = channel
        self._elsewhere = elsewhere or NoOutbound()
        self._endpoint = (
            SignedEndpoint(url, "The callback", timeout_ms=timeout_ms, secrets=secrets, retry_ms=retry_ms, clock=clock)
            if url
            else None
        )

    def can_send(self, key: ConversationKey) -> bool:
        return self._posts(key) or self._elsewhere.can_send(key)

    def _posts(self, key: ConversationKey) -> bool:
        return self._endpoint is not None and key.channel == self._channel

    async def send(self, to: Recipient, index: int, text: str) -> str:
        if self._endpoint is None or not self._posts(to.key):
            return await self._elsewhere.send(to, index, text)
        event = reply_ready(to.key, to.turn_id, index, text)
        try:
            response = await self._endpoint.post(event.id, event)
            if not 200 <= response.status < 300:
                raise self._endpoint.error_in(response, PASSING)
        # The event has the same id each time, so a receiver that had it already knows: it is safe to send again.
        except (Away, CallFailed) as error:
            raise SendFailed(str(error)) from None
        return ""

    async def aclose(self) -> None:
        if self._endpoint is not None:
            await self._endpoint.aclose()
        await self._elsewhere.aclose()
