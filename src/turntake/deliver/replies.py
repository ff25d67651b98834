"""Answers leave through the channel they came in by: in pieces that it takes, in order, with a typing indicator."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Literal

import httpx2
from msgspec.structs import replace

from turntake.clock import Clock, SystemClock
from turntake.deliver.http_call import LARGEST_BODY, answer_to, client
from turntake.deliver.outbound import NoOutbound, Outbound
from turntake.deliver.split import split
from turntake.errors import FateUnknown, SendFailed
from turntake.platforms.replies import ApiCall, ApiResponse, Recipient, ReplyApi
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")

AT_ONCE_MS = 300
LAST_WORDS_S = 1.0
HANDED_OVER = "http11.send_request_body.started"

Quotes = Literal["never", "groups", "always"]
"""When the first part of an answer quotes the message that it answers."""

ReplyApis = Mapping[tuple[str, str], ReplyApi]
"""By the channel's name and the account's, which is "" for the only or first one."""


class Replies(Outbound):
    """Every configured platform; conversations of other channels go `elsewhere`."""

    def __init__(
        self,
        senders: ReplyApis,
        elsewhere: Outbound | None = None,
        *,
        timeout_ms: int = 8_000,
        shows_typing: bool = True,
        sends_unknown_again: bool = True,
        quotes: Quotes = "groups",
        clock: Clock | None = None,
    ) -> None:
        self._senders = senders
        self._elsewhere = elsewhere or NoOutbound()
        self._timeout_ms = timeout_ms
        self._shows_typing = shows_typing
        self._sends_unknown_again = sends_unknown_again
        self._quotes = quotes
        self._clock = clock or SystemClock()
        self._client = client({"accept": "application/json"})
        self._courtesies: set[asyncio.Task[object]] = set()

    def can_send(self, key: ConversationKey) -> bool:
        return self._sender(key) is not None or self._elsewhere.can_send(key)

    def parts(self, key: ConversationKey, text: str) -> tuple[str, ...]:
        sender = self._sender(key)
        if sender is None:
            return self._elsewhere.parts(key, text)
        return tuple(part for part in split(text, sender.longest, sender.unit) if part.strip())

    async def send(self, to: Recipient, index: int, text: str) -> None:
        sender = self._sender(to.key)
        if sender is None:
            await self._elsewhere.send(to, index, text)
        else:
            quoting = to if index else replace(to, reply_to=self._quoted(to))
            sender.check(await self._made(sender.reply_call(quoting, text, f"{to.turn_id}-{index}")))

    def composing(self, to: Recipient) -> AbstractAsyncContextManager[None]:
        sender = self._sender(to.key)
        if sender is None or not self._shows_typing or not sender.typing_ms:
            return nullcontext()
        return self._composing(sender, to)

    @property
    def sends_unknown_again(self) -> bool:
        return self._sends_unknown_again

    async def aclose(self) -> None:
        await self._finished(self._courtesies)
        await self._client.aclose()
        await self._elsewhere.aclose()

    def _quoted(self, to: Recipient) -> str:
        """In a group an answer says whom it answers; between two people that is clear."""
        is_wanted = self._quotes == "always" or (self._quotes == "groups" and "@" in to.key.topic)
        return to.last.id if is_wanted and to.last else ""

    def _sender(self, key: ConversationKey) -> ReplyApi | None:
        name, slash, _ = key.account.partition("/")
        return self._senders.get((key.channel, name if slash else ""))

    @asynccontextmanager
    async def _composing(self, sender: ReplyApi, to: Recipient) -> AsyncIterator[None]:
        shown = asyncio.Event()
        typing = self._courtesy(self._type(sender, to, shown))
        try:
            yield
        finally:
            typing.cancel()
            if shown.is_set():
                self._courtesy(self._try(sender.typing_stopped_call, to))

    async def _type(self, sender: ReplyApi, to: Recipient, shown: asyncio.Event) -> None:
        """Not for an answer that is there at once: on its way, the sign might come in after it."""
        await self._clock.sleep(AT_ONCE_MS)
        shown.set()
        while await self._try(sender.typing_call, to):
            await self._clock.sleep(sender.typing_ms)

    async def _try(self, courtesy: Callable[[Recipient], ApiCall | None], to: Recipient) -> bool:
        """Whether there is such a call. One that fails is no reason to fail the answer."""
        facts: dict[str, Any] = {"action": "type", "channel": to.key.channel}
        try:
            call = courtesy(to)
            status = 200 if call is None else (await self._made(call)).status
        except Exception as error:
            log.debug("The typing indicator failed", extra=facts | {"error": type(error).__name__})
            return True
        if not 200 <= status < 300:
            log.debug("The typing indicator was refused", extra=facts | {"status": status})
        return call is not None

    def _courtesy(self, doing: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        task: asyncio.Task[object] = asyncio.create_task(doing)
        self._courtesies.add(task)
        task.add_done_callback(self._courtesies.discard)
        return task

    async def _finished(self, tasks: set[asyncio.Task[object]]) -> None:
        """An indicator that is being taken back may be; nobody waits long for that."""
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WORDS_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _made(self, call: ApiCall) -> ApiResponse:
        """What the platform answered. The words of errors are ours, since a URL may hold a token."""
        steps: list[str] = []
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._exchange(call, steps)
        except (TimeoutError, httpx2.HTTPError, httpx2.StreamError) as error:
            why = f"within {self._timeout_ms} ms" if isinstance(error, TimeoutError) else f"({type(error).__name__})"
            if HANDED_OVER not in steps:
                raise SendFailed(f"The platform could not be reached {why}.") from None
            raise FateUnknown(f"The platform gave no answer {why}; the reply may have arrived or not.") from None

    async def _exchange(self, call: ApiCall, steps: list[str]) -> ApiResponse:
        """`steps` tell, in the end, how far it came."""

        async def note(step: str, facts: object) -> None:
            steps.append(step)

        request = self._client.build_request(
            call.method,
            call.url,
            content=call.body,
            headers=dict(call.headers),
            timeout=httpx2.Timeout(None, connect=self._timeout_ms / 2_000),
            extensions={"trace": note},
        )
        async with answer_to(request, self._client) as answer:
            received = bytearray()
            async for chunk in answer.aiter_raw():
                received += chunk
                if len(received) > LARGEST_BODY:
                    break
            return ApiResponse(answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, bytes(received))
