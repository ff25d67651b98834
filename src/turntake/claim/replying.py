"""The replies to one turn: each saved before it leaves, sent in order, and sent once as far as anybody can tell.

How this works: `Progress` is the list of all parts of all replies, and how many of them left. A reply is cut into the
parts that the channel takes, the parts are appended to the list, the list is saved, and only then is the first one
sent. After each part the number that left is saved. So whoever takes the turn over after a crash finds every part that
was meant to leave, and sends the rest; at worst the one part whose sending was under way is sent again.

While the handler works, `ends` remember which parts belong to which of its calls of `turn.reply`. On a retry the n-th
call means the n-th reply of the attempt before: what was said then stands, and only its unsent parts are sent.
"""

import asyncio
import logging

from msgspec.structs import replace

from turntake.claim.held_claim import HeldClaim
from turntake.deliver.outbound import Outbound
from turntake.errors import ClaimLost, FateUnknown
from turntake.observe.observer import Observer, Observers
from turntake.platforms.replies import Recipient
from turntake.rules.conversation import Answered, Progress

log = logging.getLogger("turntake")


class Outbox:
    """What leaves for the person during one attempt. `progress` is how far that is, as the store has it."""

    __slots__ = ("_calls", "_failed", "_held", "_lock", "_observers", "_outbound", "progress", "recipient")

    def __init__(self, held: HeldClaim, outbound: Outbound, observers: Observers) -> None:
        claim = held.claim
        self.progress = claim.turn.progress
        self.recipient = Recipient(claim.key, claim.turn.id, claim.messages)
        self._held = held
        self._outbound = outbound
        self._observers = observers
        self._calls = 0
        """How many calls of `reply` went through in this attempt."""
        self._failed: tuple[str, ...] = ()
        """The parts of the latest call, if it failed."""
        self._lock = asyncio.Lock()

    async def commit(self) -> None:
        """Saves the progress, after which no message interrupts the answer."""
        async with self._lock:
            await self._save(self.progress)

    async def reply(self, text: str) -> None:
        """Sends a reply while the handler works. Raises what sending raises.

        After a call that failed, the same words are that reply once more; other words are the next one.
        """
        async with self._lock:
            if self.progress.is_final:
                raise ClaimLost("The answer is complete: await every `turn.reply` before you return.")
            if parts := self._parts(text):
                self._calls += self._failed not in ((), parts)
                self._failed = parts
                await self._send_call(parts)
                self._calls, self._failed = self._calls + 1, ()

    async def conclude(self, replies: tuple[str, ...]) -> Answered:
        """Adds the handler's answer and sends what has not left yet.

        A reply that the handler started and did not await leaves before it, or not at all.
        """
        async with self._lock:
            parts = tuple(part for reply in replies for part in self._parts(reply))
            self.progress = replace(self.progress, replies=self.progress.replies + parts, is_final=True, ends=())
            return await self.send_rest()

    async def send_rest(self) -> Answered:
        """Saves the complete answer and sends what has not left yet. Where nothing can be sent, settling saves it."""
        progress = self.progress
        if self._outbound.can_send(self._held.claim.key):
            await self._save(progress)
            for index in range(progress.sent, len(progress.replies)):
                await self._send(index)
        return Answered(progress.replies)

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
        claim, text = self._held.claim, self.progress.replies[index]
        try:
            platform_id = await self._outbound.send(self.recipient, index, text)
        except FateUnknown:
            await self._note_unknown(index)
            if self._outbound.sends_unknown_again:
                raise
        else:
            self._observers.tell(Observer.replied, claim, index, text, platform_id)
        if not self.progress.is_final or index + 1 < len(self.progress.replies):
            await self._save(replace(self.progress, sent=index + 1))

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
    return text.encode("utf-8", "replace").decode()
