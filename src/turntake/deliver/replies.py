"""Answers leave through the channel they came in by: in pieces that it takes, in order, with a typing indicator."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from msgspec.structs import replace

from turntake.clock import Clock, SystemClock
from turntake.deliver.address_guard import AddressGuard
from turntake.deliver.http_call import HttpCaller
from turntake.deliver.options import ReplyOptions
from turntake.deliver.outbound import NoOutbound, Outbound
from turntake.deliver.split import split
from turntake.errors import CallFailed, FateUnknown, SendFailed
from turntake.platforms import address
from turntake.platforms.replies import ApiCall, ApiResponse, Recipient, ReplyApi
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")

# An answer that is ready this soon needs no typing indicator, which might even arrive after it.
TYPING_DELAY_MS = 300
# How long closing waits for indicators that are being taken back: a courtesy, not worth a slow stop.
CLOSE_GRACE_MS = 1_000

ReplyApis = Mapping[tuple[str, str], ReplyApi]
"""By the channel's name and the account's, which is "" for the only or first one."""


class Replies(Outbound):
    """Every configured platform; conversations of other channels go `elsewhere`."""

    def __init__(
        self,
        apis: ReplyApis,
        elsewhere: Outbound | None = None,
        options: ReplyOptions = ReplyOptions(),  # noqa: B008 - a frozen value
        *,
        clock: Clock | None = None,
    ) -> None:
        self.apis = apis
        self._elsewhere = elsewhere or NoOutbound()
        self._options = options
        self._clock = clock or SystemClock()
        # Half the time at most goes into connecting, so that a platform that is slow to accept still gets to answer.
        self._caller = HttpCaller(
            "The platform",
            options.timeout_ms,
            options.timeout_ms // 2,
            headers={"accept": "application/json"},
            guard=AddressGuard((url for api in apis.values() for url in api.addresses), options.private_hosts),
        )
        self._typing_tasks: set[asyncio.Task[object]] = set()

    def can_send(self, key: ConversationKey) -> bool:
        return self._api(key) is not None or self._elsewhere.can_send(key)

    def parts(self, key: ConversationKey, text: str) -> tuple[str, ...]:
        api = self._api(key)
        if api is None:
            return self._elsewhere.parts(key, text)
        return tuple(part for part in split(text, api.longest, api.unit) if part.strip())

    async def send(self, to: Recipient, index: int, text: str) -> str:
        api = self._api(to.key)
        if api is None:
            return await self._elsewhere.send(to, index, text)
        quoting = to if index else replace(to, reply_to=self._quoted(to))
        call = api.reply_call(quoting, text, address.write_reply(to.turn_id, index))
        try:
            response = await self._caller.call(call)
        # The words are ours and the cause is dropped, since a platform's URL may hold a token.
        except CallFailed as error:
            if not error.is_handed_over:
                raise SendFailed(f"The platform could not be reached {error.reason}.") from None
            raise FateUnknown(
                f"The platform gave no answer {error.reason}; the reply may have arrived or not."
            ) from None
        return api.check(response)

    def composing(self, to: Recipient) -> AbstractAsyncContextManager[None]:
        api = self._api(to.key)
        if api is None or not self._options.typing or not api.typing_ms:
            return nullcontext()
        return self._composing(api, to)

    @property
    def sends_unknown_again(self) -> bool:
        return self._options.on_unknown == "resend"

    async def aclose(self) -> None:
        """Waits a moment for typing indicators that are being taken back, then closes the connections."""
        if self._typing_tasks:
            await asyncio.wait(self._typing_tasks, timeout=CLOSE_GRACE_MS / 1000)
        left = tuple(self._typing_tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._caller.aclose()
        await self._elsewhere.aclose()

    def _quoted(self, to: Recipient) -> str:
        """The id of the message to quote, if any. Between two people it is clear what an answer is about; in a group
        it is not."""
        quote = self._options.quote
        is_wanted = quote == "always" or (quote == "groups" and bool(address.read_topic(to.key.topic).person))
        return to.last.id if is_wanted and to.last else ""

    def _api(self, key: ConversationKey) -> ReplyApi | None:
        return self.apis.get((key.channel, address.read_account(key.account).name))

    @asynccontextmanager
    async def _composing(self, api: ReplyApi, to: Recipient) -> AsyncIterator[None]:
        is_shown = asyncio.Event()

        async def show() -> None:
            await self._clock.sleep(TYPING_DELAY_MS)
            is_shown.set()
            while await self._try_typing(api.typing_call, to):
                await self._clock.sleep(api.typing_ms)

        showing = self._start_typing_task(show())
        try:
            yield
        finally:
            showing.cancel()
            if is_shown.is_set():
                self._start_typing_task(self._try_typing(api.typing_stopped_call, to))

    def _start_typing_task(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        task: asyncio.Task[object] = asyncio.create_task(work)
        self._typing_tasks.add(task)
        task.add_done_callback(self._typing_tasks.discard)
        return task

    async def _try_typing(self, call_for: Callable[[Recipient], ApiCall | None], to: Recipient) -> bool:
        """Whether the platform has such a call. One that fails is only noted: the answer matters, not its indicator."""
        facts: dict[str, Any] = {"action": "type", "channel": to.key.channel}
        try:
            call = call_for(to)
            response = ApiResponse(200) if call is None else await self._caller.call(call)
        except Exception as error:
            log.debug("The typing indicator failed", extra=facts | {"error": type(error).__name__})
            return True
        if not 200 <= response.status < 300:
            log.debug("The typing indicator was refused", extra=facts | {"status": response.status})
        return call is not None
