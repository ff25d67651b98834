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
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from turntake.buffer.store import Store
from turntake.claim.breakers import Breakers, account_of, agent_of, next_call
from turntake.claim.failures import settlement_after
from turntake.claim.handler_control import HandlerControl
from turntake.claim.handler_limits import HandlerLimits
from turntake.claim.held_claim import HeldClaim
from turntake.claim.options import WorkerOptions
from turntake.claim.replying import Outbox
from turntake.claim.sending import SendingPlaces
from turntake.deliver.outbound import Outbound
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.deliver.turn import Turn, no_token
from turntake.errors import Away, ClaimLost, StoreUnavailable
from turntake.observe.observer import Observer, Observers
from turntake.rules.conversation import Answered, Retry, Settlement
from turntake.rules.message import Message
from turntake.rules.records import Claim
from turntake.rules.retry import AllowedCompany, before_attempt, company_of
from turntake.rules.scopes import RuleBook, RulesFor

# A platform that keeps every place taken for seconds will not have one free at once.
NO_PLACE_PAUSE_MS = 2_000


_NO_LAYERS = RuleBook()


class Ports(NamedTuple):
    """What an attempt works with: where claims are kept, who answers, how answers leave, and who hears of it.

    `token_for` gives the token with which the agent of a turn may complete it through the API. `book` are all rules as
    they are now. Nothing is claimed before `is_ready`: what all processes share, such as the secret behind those
    tokens, may be with a part of the store that is away, and a turn is handed over with the same words each time.
    """

    store: Store
    sink: Sink
    outbound: Outbound
    observers: Observers
    rules_for: RulesFor
    token_for: Callable[[str], str] = no_token
    book: Callable[[], RuleBook] = lambda: _NO_LAYERS
    is_ready: Callable[[], bool] = lambda: True


class Shared(NamedTuple):
    """What all attempts of one process share."""

    options: WorkerOptions
    limits: HandlerLimits
    breakers: Breakers
    places: SendingPlaces
    free_slot: Callable[[], None]
    """Called when an attempt only has to send from here on, and gives its worker slot back."""


class Attempt:
    """From a claim to its settlement. `error` is what went wrong, if anything did.

    `company` says which others may run beside it in this process.
    """

    __slots__ = (
        "_control",
        "_ended",
        "_outbox",
        "_ports",
        "_rules",
        "_shared",
        "company",
        "error",
        "held",
        "is_pending",
        "is_sending",
    )

    def __init__(self, claim: Claim, ports: Ports, shared: Shared) -> None:
        self.held = HeldClaim(claim, ports.store, shared.options.lease_ms)
        self.is_pending = False
        """Whether the agent will complete the turn through the API: then nobody here extends its lease."""
        self.is_sending = False
        """Whether the agent is done: what is left is to send."""
        self.error: Exception | None = None
        self._ports = ports
        self._shared = shared
        self._rules = ports.rules_for(claim.key, claim.turn.agent)
        self._ended = before_attempt(claim.turn, self._rules, not claim.messages, claim.is_unreadable)
        self.company: AllowedCompany = company_of(claim.turn) if self._ended is None else "anybody"
        self._outbox = Outbox(self.held, ports.outbound, ports.observers, shared.breakers)
        self._control = HandlerControl(self.held, self._outbox, self._rules, ports.observers)

    @property
    def claim(self) -> Claim:
        """With what the handler absorbed."""
        return self.held.claim

    @property
    def is_calling(self) -> bool:
        """Whether a reply is with the platform at this moment."""
        return self._outbox.is_calling

    def pause_ms(self) -> int:
        """0 if it may begin; else for how long to hand the turn back, since nobody is there to take it."""
        return 0 if self._ended is not None else self._shared.breakers.pause_ms(next_call, self.held.claim)

    def arrived(self, message: Message) -> None:
        """A message came in for this conversation while it is being answered."""
        self._control.arrived(message)

    def offered(self) -> None:
        """Another process took a message that the handler may absorb."""
        self._control.tell()

    async def withdrawn_as(self) -> str:
        """How the turn was closed if its claim was lost because the answer was stale; "" if it was lost otherwise."""
        return "" if self._rules.on_stale == "send" else await self.held.withdrawn_as()

    async def run(self) -> Settlement | None:
        """How the claim ended; None if the agent will complete the turn later."""
        settlement: Settlement | None = self._ended or await self._answer()
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
                await self._outbox.commit()
            else:
                outcome = await self._hand_over()
                if isinstance(outcome, Pending):
                    await self._wait_for_completion(outcome)
                    return None
                await self._outbox.conclude(outcome.replies)
            return await self._send() if self._outbox.can_send else Answered(self._outbox.progress.replies)
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

    async def _send(self) -> Settlement:
        """Sends the saved answer from a place of its account, and lets other turns have the worker slot."""
        is_new = not self.held.claim.turn.progress.is_final  # else its account was asked for before the attempt began
        if is_new and (pause_ms := self._shared.breakers.pause_ms(account_of, self.held.claim)):
            return Retry(pause_ms, is_failure=False)
        self.is_sending = True
        self._shared.free_slot()
        async with self._shared.places.taken(account_of(self.held.claim)) as has_place:
            if has_place:
                return await self._outbox.send_rest()
        return Retry(NO_PLACE_PAUSE_MS, is_failure=False)

    async def _hand_over(self) -> Answer | Pending:
        breakers, sink = self._shared.breakers, self._ports.sink
        turn = Turn(self.held.claim, self._control, self._ports.token_for, self._rules.text_format)
        try:
            async with self._ports.outbound.composing(self._outbox.recipient):
                if sink.is_bounded:
                    outcome = await sink.deliver(turn)
                else:
                    with self._shared.limits.begin() as self._control.limit:
                        outcome = await sink.deliver(turn)
        except (ClaimLost, StoreUnavailable):
            raise
        except Away:
            breakers.missed(agent_of, self.held.claim)
            raise
        except Exception:
            breakers.reached(agent_of, self.held.claim)
            raise
        breakers.reached(agent_of, self.held.claim)
        return outcome

    async def _wait_for_completion(self, pending: Pending) -> None:
        self.is_pending = True
        # A quick agent may have completed the turn already, which ends this claim.
        with suppress(ClaimLost):
            await self.held.extend(pending.within_ms, "promised")
        self._ports.observers.tell(Observer.pending, self.held.claim, pending.within_ms)

    def _after(self, error: Exception) -> Settlement:
        self.error = error
        return settlement_after(error, self.held.claim, self._outbox.progress, self._rules, self.held.clock.now())


def _is_being_cancelled() -> bool:
    """Whether somebody cancelled this task, or only something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
