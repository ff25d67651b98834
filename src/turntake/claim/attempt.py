"""One attempt at one turn: hand it to the agent, send the answer, settle the claim.

How this works: a worker makes an `Attempt` for each claim and runs it as a task. The attempt only conducts. Three parts
do the work: `HeldClaim` is the claim in the store, `Outbox` the replies on their way out, `HandlerControl` what the
handler may do meanwhile. Whatever goes wrong becomes a settlement in one place, `_after`, except for two errors that
leave nothing to settle: ClaimLost (the turn is somebody else's) and StoreUnavailable (nobody can be told; the lease
ends by itself, and the turn is handed over again).

The task is cancelled when the person interrupts, when the claim is lost, and when the worker stops. Then nothing is
settled here: the store has already moved on, or the worker hands the turn back.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import NamedTuple

from turntake.buffer.store import Store
from turntake.claim.failures import settlement_after
from turntake.claim.held_claim import HeldClaim
from turntake.claim.replying import Outbox
from turntake.deliver.outbound import Outbound
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.deliver.turn import Turn, TurnControl
from turntake.errors import ClaimLost, StoreUnavailable
from turntake.observe.observer import Observer, Observers
from turntake.rules.conversation import Settlement
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Claim
from turntake.rules.retry import before_attempt
from turntake.rules.rules import Rules


class Ports(NamedTuple):
    """What an attempt works with: where claims are kept, who answers, how answers leave, and who hears of it."""

    store: Store
    sink: Sink
    outbound: Outbound
    observers: Observers
    rules_for: Callable[[ConversationKey], Rules]


class HandlerControl(TurnControl):
    """What a handler may do with its claim while it works."""

    __slots__ = ("_arrived", "_held", "_is_over", "_news", "_outbox")

    def __init__(self, held: HeldClaim, outbox: Outbox) -> None:
        self._held = held
        self._outbox = outbox
        self._arrived: list[Message] = []
        self._is_over = False
        self._news: asyncio.Event | None = None

    async def commit(self) -> None:
        await self._outbox.commit()

    async def reply(self, text: str) -> None:
        await self._outbox.reply(text)

    async def extend(self, duration_ms: int | None) -> None:
        await self._held.extend(max(duration_ms or 0, self._held.lease_ms))

    async def arrivals(self) -> AsyncIterator[Message]:
        # Few handlers watch, so only those pay for an event.
        self._news = self._news or asyncio.Event()
        while self._arrived or not self._is_over:
            while self._arrived:
                yield self._arrived.pop(0)
            self._news.clear()
            if not self._is_over:
                await self._news.wait()

    def arrived(self, message: Message) -> None:
        """A message came in: whoever watches sees it."""
        self._arrived.append(message)
        self._tell()

    def close(self) -> None:
        """The handler is done: whoever still watches sees the end."""
        self._is_over = True
        self._tell()

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()


class Attempt:
    """From a claim to its settlement. `error` is what went wrong, if anything did."""

    __slots__ = ("_control", "_outbox", "_ports", "_rules", "claim", "error", "held", "is_pending")

    def __init__(self, claim: Claim, ports: Ports, lease_ms: int) -> None:
        self.claim = claim
        self.held = HeldClaim(claim, ports.store, lease_ms)
        self.is_pending = False
        """Whether the agent will complete the turn through the API: then nobody here extends its lease."""
        self.error: Exception | None = None
        self._ports = ports
        self._rules = ports.rules_for(claim.key)
        self._outbox = Outbox(self.held, ports.outbound, ports.observers)
        self._control = HandlerControl(self.held, self._outbox)

    def arrived(self, message: Message) -> None:
        """A message came in for this conversation while it is being answered."""
        self._control.arrived(message)

    async def run(self) -> Settlement | None:
        """How the claim ended; None if the agent will complete the turn later."""
        ended = before_attempt(self.claim.turn, self._rules, is_empty=not self.claim.messages)
        settlement: Settlement | None = ended or await self._answer()
        if settlement is None:
            return None
        try:
            await self.held.settle(settlement)
        except (ClaimLost, StoreUnavailable):
            raise
        # A store may refuse an answer, for example one that is too long. That is a failure like any other.
        except Exception as error:
            settlement = self._after(error)
            await self.held.settle(settlement)
        return settlement

    async def _answer(self) -> Settlement | None:
        try:
            if self._outbox.progress.is_final:  # an earlier attempt got the answer, and could not send all of it
                return await self._outbox.send_rest()
            outcome = await self._hand_over()
            if isinstance(outcome, Answer):
                return await self._outbox.conclude(outcome.replies)
            await self._wait_for_completion(outcome)
            return None
        except (ClaimLost, StoreUnavailable):
            raise
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            return self._after(RuntimeError(f"The handler was cancelled by something it waited for. {error}"))
        except Exception as error:
            return self._after(error)
        finally:
            self._control.close()

    async def _hand_over(self) -> Answer | Pending:
        async with self._ports.outbound.composing(self._outbox.recipient):
            return await self._ports.sink.deliver(Turn(self.claim, self._control))

    async def _wait_for_completion(self, pending: Pending) -> None:
        self.is_pending = True
        # A quick agent may have completed the turn already, which ends this claim.
        with suppress(ClaimLost):
            await self.held.extend(pending.within_ms)
        self._ports.observers.tell(Observer.pending, self.claim, pending.within_ms)

    def _after(self, error: Exception) -> Settlement:
        self.error = error
        return settlement_after(error, self.claim, self._outbox.progress, self._rules, self.held.clock.now())


def _is_being_cancelled() -> bool:
    """Whether somebody cancelled this task, or only something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
