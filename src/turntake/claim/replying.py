"""The replies to one turn: each saved before it leaves, sent in order, and sent once as far as anybody can tell.

How this works: `Progress` is the list of all parts of all replies, and how many of them left. A reply is cut into the
parts that the channel takes, the parts are appended to the list, the list is saved, and only then is the first one
sent. After each part the number that left is saved. So whoever takes the turn over after a crash finds every part that
was meant to leave, and sends the rest; at worst the one part whose sending was under way is sent again.

While the handler works, `ends` remember which parts belong to which of its calls of `turn.reply`. On a retry the n-th
call means the n-th reply of the attempt before: what was said then stands, and only its unsent parts are sent.

A part that is with the platform is never simply dropped. If the attempt is cancelled meanwhile, the call gets some
seconds to end, so that its fate is known and noted; if it does not end, that is noted too.
"""

import asyncio
import logging
from contextlib import suppress

from msgspec.structs import replace

from turntake.claim.breakers import Breakers, account_of
from turntake.claim.held_claim import HeldClaim
from turntake.deliver.outbound import Outbound
from turntake.errors import ClaimLost, FateUnknown, SendFailed, StoreUnavailable
from turntake.observe.observer import Observer, Observers
from turntake.platforms.replies import Recipient
from turntake.rules.conversation import Answered, Progress

log = logging.getLogger("turntake")

# As long as a call to a platform may take by default: after that it would have ended by itself.
SEND_GRACE_MS = 8_000


class Outbox:
    """What leaves for the person during one attempt. `progress` is how far that is, as the store has it."""

    __slots__ = (
        "_breakers",
        "_calls",
        "_failed",
        "_held",
        "_lock",
        "_observers",
        "_outbound",
        "can_send",
        "is_calling",
        "progress",
    )

    def __init__(self, held: HeldClaim, outbound: Outbound, observers: Observers, breakers: Breakers) -> None:
        claim = held.claim
        self.progress = claim.turn.progress
        self.can_send = outbound.can_send(claim.key)
        self.is_calling = False
        """Whether a reply is with the platform at this moment."""
        self._held = held
        self._outbound = outbound
        self._observers = observers
        self._breakers = breakers
        self._calls = 0
        """How many calls of `reply` went through in this attempt."""
        self._failed: tuple[str, ...] = ()
        """The parts of the latest call, if it failed."""
        self._lock: asyncio.Lock | None = None
        """Held by each call of the handler's. Few handlers make any, so only those pay for it."""

    @property
    def recipient(self) -> Recipient:
        claim = self._held.claim
        return Recipient(claim.key, claim.turn.id, claim.messages)

    async def commit(self) -> None:
        """Saves the progress, after which no message interrupts the answer."""
        async with self._locked():
            await self._save(self.progress)

    async def reply(self, text: str) -> None:
        """Sends a reply while the handler works. Raises what sending raises.

        After a call that failed, the same words are that reply once more; other words are the next one.
        """
        async with self._locked():
            if self.progress.is_final:
                raise ClaimLost("The answer is complete: await every `turn.reply` before you return.")
            if parts := self._parts(text):
                self._calls += self._failed not in ((), parts)
                self._failed = parts
                await self._send_call(parts)
                self._calls, self._failed = self._calls + 1, ()

    async def conclude(self, replies: tuple[str, ...]) -> None:
        """Adds the handler's answer and saves it, complete. Where nothing can be sent, settling saves it.

        A reply that the handler started and did not await leaves before it, or not at all.
        """
        if self._lock is None:
            self._complete(replies)
        else:
            async with self._lock:
                self._complete(replies)
        if self.can_send:
            await self._save(self.progress)

    async def send_rest(self) -> Answered:
        """Sends what has not left yet of an answer that is complete and saved."""
        progress = self.progress
        # A dead letter of one part that failed is sent again from there, and the others may have arrived.
        arrived = {report.index for report in self._held.claim.turn.reports if report.status != "failed"}
        for index in range(progress.sent, len(progress.replies)):
            if index not in arrived:
                await self._send(index)
        return Answered(progress.replies)

    def _locked(self) -> asyncio.Lock:
        self._lock = self._lock or asyncio.Lock()
        return self._lock

    def _complete(self, replies: tuple[str, ...]) -> None:
        parts = self.progress.replies
        for reply in replies:
            parts += self._parts(reply)
        self.progress = replace(self.progress, replies=parts, is_final=True, ends=())

    async def _send_call(self, parts: tuple[str, ...]) -> None:
        progress = self.progress
        # A turn that was saved by the first release has no `ends`: every reply was one part then.
        ends = progress.ends or tuple(range(1, len(progress.replies) + 1))
        if self._calls == len(ends):
            ends = (*ends, len(progress.replies) + len(parts))
            progress = replace(progress, replies=progress.replies + parts, ends=ends)
        unsent = range(progress.sent, ends[self._calls])
        if unsent:
            await self._save(progress)
        for index in unsent:
            await self._send(index)

    async def _send(self, index: int) -> None:
        """Sends one part, and notes that it left unless settling is about to do so."""
        try:
            await self._call(index)
        except FateUnknown:
            await self._note_unknown(index)
            if self._outbound.sends_unknown_again:
                raise
        if not self.progress.is_final or index + 1 < len(self.progress.replies):
            await self._save(replace(self.progress, sent=index + 1))

    async def _call(self, index: int) -> None:
        """Hands one part to the platform. If the attempt is cancelled meanwhile, the call still ends and is noted."""
        call = asyncio.create_task(self._try(index))
        self.is_calling = True
        try:
            await asyncio.shield(call)
        except asyncio.CancelledError:
            if not call.cancelled():
                await self._see_off(call, index)
            raise
        finally:
            self.is_calling = False

    async def _try(self, index: int) -> None:
        claim, text = self._held.claim, self.progress.replies[index]
        try:
            platform_id = await self._outbound.send(self.recipient, index, text)
        except (SendFailed, FateUnknown):
            self._breakers.missed(account_of, claim)
            raise
        except Exception:
            self._breakers.reached(account_of, claim)
            raise
        self._breakers.reached(account_of, claim)
        self._observers.tell(Observer.replied, claim, index, text, platform_id)

    async def _see_off(self, call: "asyncio.Task[None]", index: int) -> None:
        """The attempt is being cancelled: waits for the call's end for as long as a call may take, and notes it."""
        try:
            with suppress(TimeoutError):
                async with self._held.clock.limit(SEND_GRACE_MS):
                    await asyncio.wait([call])
            is_unknown = not call.done() or isinstance(call.exception(), FateUnknown)
            with suppress(ClaimLost, StoreUnavailable):
                if is_unknown:
                    await self._note_unknown(index)
                elif call.exception() is None:
                    await self._save(replace(self.progress, sent=index + 1))
        finally:
            call.cancel()

    async def _note_unknown(self, index: int) -> None:
        claim = self._held.claim
        facts = {"action": "send", "conversation": str(claim.key), "turn": claim.turn.id, "place": index}
        log.warning("A reply may have been sent or not", extra=facts)
        self._observers.tell(Observer.reply_unknown, claim, index)
        unknown = (*(other for other in self.progress.unknown if other != index), index)
        sent = self.progress.sent if self._outbound.sends_unknown_again else index + 1
        await self._save(replace(self.progress, sent=sent, unknown=unknown))

    async def _save(self, progress: Progress) -> None:
        await self._held.save(progress)
        self.progress = progress

    def _parts(self, reply: str) -> tuple[str, ...]:
        return self._outbound.parts(self._held.claim.key, storable(reply))


def storable(text: str) -> str:
    """The text without halves of characters, which no store and no channel takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
