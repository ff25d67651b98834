"""One attempt at one turn: hand it over, save what came back, send it, settle."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from random import random

from msgspec.structs import replace

from turntake.buffer.store import Store
from turntake.clock import Clock
from turntake.deliver.outbound import Outbound
from turntake.deliver.sink import Pending, Sink
from turntake.deliver.turn import Turn, TurnControl
from turntake.errors import ClaimLost, FateUnknown, GiveUp, RetryLater, StoreUnavailable
from turntake.platforms.replies import Recipient
from turntake.rules.conversation import Answered, Dead, Progress, SealedTurn, Settlement
from turntake.rules.message import Message
from turntake.rules.records import Claim
from turntake.rules.retry import after_failure, after_postponement, before_attempt
from turntake.rules.rules import Rules

log = logging.getLogger("turntake")

PAUSES_MS = (100, 200, 400, 800, 1_600)
LONGEST_ERROR = 4_096


class Attempt(TurnControl):
    """Holds a claim for as long as its handler works. `settlement` is what came of it, once it is over."""

    def __init__(self, claim: Claim, store: Store, sink: Sink, outbound: Outbound, rules: Rules, lease_ms: int) -> None:
        self.claim = claim
        self.settlement: Settlement | None = None
        self.is_pending = False
        self.lease_until_at = claim.turn.due_at
        self._store = store
        self._sink = sink
        self._outbound = outbound
        self._rules = rules
        self._lease_ms = lease_ms
        self._recipient = Recipient(claim.key, claim.turn.id, claim.messages)
        self._progress = claim.turn.progress
        self._replied = 0
        self._failed: tuple[str, ...] = ()
        self._turn_of_replies = asyncio.Lock()
        self._arrived: list[Message] = []
        self._is_over = False
        self._news: asyncio.Event | None = None

    async def run(self) -> None:
        """From the claim to its settlement. Raises ClaimLost if somebody took the turn over meanwhile."""
        is_empty = not self.claim.messages
        settlement = before_attempt(self.claim.turn, self._rules, is_empty) or await self._answer()
        if settlement is not None:
            await self._end(settlement)

    async def _end(self, settlement: Settlement) -> None:
        """A result that cannot be kept is a failure like any other, not a turn that nobody holds."""
        try:
            await self.settle(settlement)
        except (ClaimLost, StoreUnavailable):
            raise
        except Exception as error:
            await self.settle(self._after(error))

    async def settle(self, settlement: Settlement) -> None:
        """Ends the claim, patiently: a store that hiccups now must not cost the answer."""
        if not await persistently(self._store.clock, lambda: self._store.settle(self.claim, settlement)):
            raise ClaimLost
        self.settlement = settlement

    async def _answer(self) -> Settlement | None:
        try:
            if not self._progress.is_final:
                async with self._outbound.composing(self._recipient):
                    outcome = await self._sink.deliver(Turn(self.claim, self))
                if isinstance(outcome, Pending):
                    self.is_pending = True
                    await persistently(self._store.clock, lambda: self._extended(outcome.within_ms))
                    return None
                return await self._conclude(outcome.replies)
            return await self._send_rest()
        except (ClaimLost, StoreUnavailable):
            raise
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            return self._after(RuntimeError(f"The handler was cancelled by something it waited for. {error}"))
        except Exception as error:
            return self._after(error)
        finally:
            self._is_over = True
            self._tell()

    async def _conclude(self, replies: tuple[str, ...]) -> Settlement:
        """The answer is complete: a reply that the handler left under way comes before it or not at all."""
        async with self._turn_of_replies:
            parts = tuple(part for reply in replies for part in self._parts(reply))
            self._progress = replace(self._progress, replies=self._progress.replies + parts, is_final=True, ends=())
            return await self._send_rest()

    async def _send_rest(self) -> Settlement:
        progress = self._progress
        if not self._outbound.can_send(self.claim.key):
            return Answered(progress.replies)
        await self._save(progress)
        for index in range(progress.sent, len(progress.replies)):
            await self._send(index)
        return Answered(progress.replies)

    async def _send(self, index: int) -> None:
        """Sends one reply, and notes it unless settling is about to."""
        replies = self._progress.replies
        try:
            await self._outbound.send(self._recipient, index, replies[index])
        except FateUnknown:
            await self._note_unknown(index)
            if self._outbound.sends_unknown_again:
                raise
        if not self._progress.is_final or index + 1 < len(replies):
            await self._save(replace(self._progress, sent=index + 1))

    async def _note_unknown(self, index: int) -> None:
        unknown = (*(place for place in self._progress.unknown if place != index), index)
        facts = {"action": "send", "conversation": str(self.claim.key), "turn": self.claim.turn.id, "place": index}
        log.warning("A reply may have been sent or not", extra=facts)
        sent = self._progress.sent if self._outbound.sends_unknown_again else index + 1
        await self._save(replace(self._progress, sent=sent, unknown=unknown))

    async def _save(self, progress: Progress) -> None:
        if not await persistently(self._store.clock, lambda: self._store.save(self.claim, progress)):
            raise ClaimLost
        self._progress = progress

    def _after(self, error: Exception) -> Settlement:
        turn, now = self.claim.turn, self._store.clock.now()
        message = storable(f"{type(error).__name__}: {error}")[:LONGEST_ERROR]
        if isinstance(error, RetryLater):
            log.info("A turn is put off", extra=self._facts("postpone", error))
            return after_postponement(turn, self._rules, error.after_ms, message, now)
        if isinstance(error, GiveUp):
            log.warning("A turn is given up; its dead letter says why", extra=self._facts("give up", error))
            return Dead("given up", storable(str(error))[:LONGEST_ERROR])
        log.warning("A turn failed", extra=self._facts("fail", error))
        return after_failure(self._now_sending(turn), self._rules, message, now, random())

    def _facts(self, action: str, error: Exception) -> dict[str, object]:
        """For the log: never the error's words, which may be a person's or a platform's."""
        return {
            "action": action,
            "conversation": str(self.claim.key),
            "turn": self.claim.turn.id,
            "attempt": self.claim.turn.attempt,
            "error": type(error).__name__,
        }

    def _now_sending(self, turn: SealedTurn) -> SealedTurn:
        """The turn as the store has it: once the answer was saved, its failures count from there."""
        is_new = self._progress.is_final and not turn.progress.is_final
        return replace(turn, failures=0) if is_new else turn

    async def commit(self) -> None:
        async with self._turn_of_replies:
            await self._save(self._progress)

    async def reply(self, text: str) -> None:
        """The `n`-th reply of an attempt is the `n`-th of the turn: what an earlier attempt said stands as it said it,
        and only what has not left of that is sent.

        After one that failed, the same words are that reply once more; other words are the next one.
        """
        async with self._turn_of_replies:
            if self._progress.is_final:
                raise ClaimLost("The answer is complete: await every `turn.reply` before you return.")
            if parts := self._parts(text):
                self._replied += self._failed not in ((), parts)
                self._failed = parts
                await self._reply(parts)
                self._replied, self._failed = self._replied + 1, ()

    async def _reply(self, parts: tuple[str, ...]) -> None:
        progress, ends = self._progress, self._ends
        if self._replied == len(ends):
            ends = (*ends, len(progress.replies) + len(parts))
            progress = replace(progress, replies=progress.replies + parts, ends=ends)
        unsent = range(progress.sent, ends[self._replied])
        if unsent:
            await self._save(progress)
        for index in unsent:
            await self._send(index)

    @property
    def _ends(self) -> tuple[int, ...]:
        """Where each of the handler's own replies ends. The release before this one kept every reply in one part."""
        return self._progress.ends or tuple(range(1, len(self._progress.replies) + 1))

    def _parts(self, reply: str) -> tuple[str, ...]:
        """The reply as the channel takes it. Each part is saved by itself, so that none is sent twice."""
        return self._outbound.parts(self.claim.key, storable(reply))

    async def extend(self, duration_ms: int | None) -> None:
        if not await self._extended(max(duration_ms or 0, self._lease_ms)):
            raise ClaimLost

    async def _extended(self, duration_ms: int) -> bool:
        until_at = self._store.clock.now() + duration_ms
        (holds,) = await self._store.extend([self.claim], duration_ms)
        self.lease_until_at = until_at
        return holds

    def arrived(self, message: Message) -> None:
        self._arrived.append(message)
        self._tell()

    async def arrivals(self) -> AsyncIterator[Message]:
        """Few handlers watch, so only those pay for waiting."""
        self._news = self._news or asyncio.Event()
        while self._arrived or not self._is_over:
            while self._arrived:
                yield self._arrived.pop(0)
            self._news.clear()
            if not self._is_over:
                await self._news.wait()

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()


def storable(text: str) -> str:
    """The text without halves of characters, which no store and no channel takes."""
    return text.encode("utf-8", "replace").decode()


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def persistently(clock: Clock, operation: Callable[[], Awaitable[bool]]) -> bool:
    """Tries a store operation again while the store is away for a moment; the claim's epoch makes that safe."""
    for pause_ms in PAUSES_MS:
        try:
            return await operation()
        except StoreUnavailable:
            await clock.sleep(pause_ms)
    return await operation()
