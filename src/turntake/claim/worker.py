"""Takes what is due, runs one attempt for each claim, many at a time.

How this works: one loop asks the store when the next turn is due, sleeps on the alarm until then, and claims as many
turns as there are free slots; `FairClaims` says which, if not all can be. Each claim runs as a task of its own and
wakes the loop when it ends, since that frees a slot. The alarm also rings when a message sets an earlier deadline.
Beside the loop, `LeaseKeeper` extends the leases of all running attempts. A store that fails costs a pause, never the
worker.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable

from turntake.claim.alarm import Alarm
from turntake.claim.attempt import Attempt, Ports, Shared
from turntake.claim.breakers import Breakers
from turntake.claim.cancelling import Cancelling
from turntake.claim.company import Company
from turntake.claim.fair_claims import FairClaims
from turntake.claim.handler_limits import HandlerLimits
from turntake.claim.leases import LeaseKeeper
from turntake.claim.options import WorkerOptions
from turntake.claim.outage import Outage
from turntake.claim.replying import SEND_GRACE_MS
from turntake.claim.sending import SendingPlaces
from turntake.claim.watch import Watch
from turntake.errors import ClaimLost, StoreUnavailable
from turntake.observe.observer import Observer
from turntake.rules.conversation import Retry, Settlement
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Claim
from turntake.rules.watch import JOIN_MS
from turntake.tasks import end

log = logging.getLogger("turntake")

# A store that is away is asked twice a second: soon enough for people, too seldom to hold up its return.
STORE_PAUSE_MS = 500
# A handler that catches its cancellation gets this long to end; then its turn is handed back without it.
CANCEL_GRACE_MS = 1_000
# For a store that does not answer when a worker stops. Those who run services kill them after 10 to 30 s, and a lease
# that is not handed back ends by itself.
STORE_GRACE_MS = 3_000
# A claim that brought so many at once says by itself that more may be due: claim again without asking first.
SKIP_RECHECK_AT = 10


class Worker:
    """Answers turns until it is stopped."""

    def __init__(self, ports: Ports, alarm: Alarm, options: WorkerOptions) -> None:
        self._ports = ports
        self._clock = ports.store.clock
        self._loop = asyncio.get_running_loop()  # asked once: it costs a system call
        self._alarm = alarm
        self._options = options
        self._running: dict[Attempt, asyncio.Task[None]] = {}
        self._latest: dict[ConversationKey, Attempt] = {}
        self._claims = FairClaims(ports, self._running, options.concurrency)
        self._leases = LeaseKeeper(ports.store, self._running, options.lease_ms)
        self._company = Company(self._running, self._clock, options.handler_ms)
        self._watch = Watch(self._clock, lambda: self._free <= 0)
        limits, breakers = HandlerLimits(self._clock, options.handler_ms), Breakers(ports.store, alarm.wake)
        self._shared = Shared(options, limits, breakers, SendingPlaces(self._clock), self._free_slot)
        self._outage = Outage(self._clock)
        self._cancelling = Cancelling(ports.sink)
        self._sending = 0
        self._is_stopping = False
        self._hurried = asyncio.Event()
        self._id = secrets.token_hex(6)

    def start(self) -> None:
        self._claiming = asyncio.create_task(self._claim_until_stopped())
        self._extending = asyncio.create_task(self._leases.run())
        self._joining = asyncio.create_task(self._join_again_and_again())

    async def stop(self) -> None:
        """Claims nothing more, lets handlers finish for `shutdown_ms`, then hands back what is left."""
        self._is_stopping = True
        self._alarm.wake()
        await end([self._joining])
        await self._while_the_store_answers(self._claiming)
        await self._while_the_store_answers(self._ports.store.leave(self._id))
        if self._running:
            await self._let_finish()
        if unfinished := dict(self._running):
            for task in unfinished.values():
                task.cancel()
            await asyncio.wait(unfinished.values(), timeout=CANCEL_GRACE_MS / 1000)
            if calling := [task for attempt, task in unfinished.items() if attempt.is_calling]:
                await asyncio.wait(calling, timeout=SEND_GRACE_MS / 1000)
            at_once = Retry(after_ms=0, is_failure=False)
            await self._while_the_store_answers(*(self._let_go(attempt, at_once) for attempt in unfinished))
        self._cancelling.close()
        self._shared.limits.close()
        self._shared.breakers.close()
        await end([self._extending])

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def hurry(self) -> None:
        """Ends the time that a stop gives to handlers: what is left is handed back at once."""
        self._hurried.set()

    async def _while_the_store_answers(self, *work: Awaitable[None]) -> None:
        """The end of all that, or of the time that a store gets for it while this worker stops. What is then not handed
        back is handed over again when its lease ends."""
        tasks = [asyncio.ensure_future(each) for each in work]
        done, late = await asyncio.wait(tasks, timeout=STORE_GRACE_MS / 1000)
        for task in late:
            task.cancel()
        errors = [error for task in done if not task.cancelled() and (error := task.exception())]
        if late or errors:
            kinds = sorted({type(error).__name__ for error in errors})
            facts = {"action": "stop", "late": len(late), "failed": len(errors), "errors": kinds}
            log.warning("The store did not answer in time; stopping without it", extra=facts)

    async def _let_finish(self) -> None:
        finished = asyncio.ensure_future(asyncio.wait(self._running.values()))
        hurried = asyncio.ensure_future(self._hurried.wait())
        timeout = self._options.shutdown_ms / 1000
        await asyncio.wait([finished, hurried], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finished.cancel()
        hurried.cancel()

    @property
    def full_ms(self) -> int:
        """For how long every slot has been taken, if that is worth a word; else 0."""
        return self._watch.full_ms

    def interrupt(self, key: ConversationKey, turn_id: str, epoch: int | None = None) -> None:
        """The turn is no longer to be answered: its handler is cancelled. Its result would be refused anyway.

        With `epoch`, only that claim's: whoever took the turn since, perhaps to send its answer, goes on.
        """
        attempt = self._latest.get(key)
        self._cancelling.interrupted(key, turn_id, epoch, None if attempt is None else attempt.claim)
        self._stop(attempt, turn_id, epoch)

    def finished_elsewhere(self, claim: Claim) -> None:
        """The turn was completed or failed through the API: whoever still works on it here may stop."""
        self._cancelling.is_over(claim.key)
        self._stop(self._latest.get(claim.key), claim.turn.id, claim.epoch)

    def _stop(self, attempt: Attempt | None, turn_id: str, epoch: int | None) -> None:
        if attempt is not None and attempt.claim.turn.id == turn_id and epoch in (None, attempt.claim.epoch):
            self._running[attempt].cancel()

    def arrived(self, key: ConversationKey, message: Message) -> None:
        """A message came in for a conversation that is being answered here."""
        if attempt := self._latest.get(key):
            attempt.arrived(message)

    def offered(self, key: ConversationKey) -> None:
        """Another process took a message that an answer under way here may absorb."""
        if attempt := self._latest.get(key):
            attempt.offered()

    def absorbed(self, claim: Claim) -> None:
        """An agent that is called from here absorbed messages through the API: they belong to its attempt."""
        attempt = self._latest.get(claim.key)
        if attempt is not None and (attempt.claim.turn.id, attempt.claim.epoch) == (claim.turn.id, claim.epoch):
            attempt.held.claim = claim

    async def _claim_until_stopped(self) -> None:
        look_at = None
        while not self._is_stopping:
            try:
                look_at = await self._claim_due(look_at)
                self._outage.succeeded()
            except Exception as error:
                self._outage.failed(error)
                look_at = self._clock.now() + STORE_PAUSE_MS
            self._watch.woke(await self._alarm.sleep(look_at))

    async def _join_again_and_again(self) -> None:
        """Others that share the store leave this worker its deadlines for as long as it says that it lives."""
        while True:
            try:
                await self._ports.store.join(self._id)
            except Exception as error:
                log.debug("Other workers were not met", extra={"action": "join", "error": type(error).__name__})
            await self._clock.sleep(JOIN_MS)

    async def _claim_due(self, known_at: int | None) -> int | None:
        """Claims until nothing is due or every slot is taken; returns when to look again.

        Once the deadline that the last look saw has come, it claims first and looks for the next one afterwards.
        """
        if not self._ports.is_ready():
            return self._clock.now() + STORE_PAUSE_MS
        is_due = known_at is not None and known_at <= self._clock.now()
        while not self._is_stopping:
            free = self._free
            if free <= 0 or self._company.is_closed:
                return None
            now = self._clock.now()
            if not is_due:
                look_at = await self._ports.store.next_look()
                if look_at is None or look_at > now:
                    return look_at
            await self._leases.extend_if_late()
            claims = await self._claims.claim(free, self._options.lease_ms)
            if not claims and not is_due:
                # Rung and not returned: what is a guess is looked at before it is claimed.
                self._alarm.ring(self._clock.now() + self._claims.pause_ms)
                return None
            await self._start_all(claims)
            is_due = len(claims) >= min(free, SKIP_RECHECK_AT)
        return None

    @property
    def _free(self) -> int:
        """How many slots are. What only sends needs none."""
        return self._options.concurrency - len(self._running) + self._sending

    def _free_slot(self) -> None:
        self._sending += 1
        self._alarm.wake()

    async def _start_all(self, claims: list[Claim]) -> None:
        """Starts an attempt for each claim, or hands the turn back for a while: it may not run beside the others, or
        nobody is there to take it."""
        refused = []
        for claim in claims:
            attempt = Attempt(claim, self._ports, self._shared)
            pause_ms = self._company.pause_ms(attempt) or attempt.pause_ms()
            if pause_ms:
                refused.append(self._hand_back(attempt, Retry(pause_ms, is_failure=False, is_tried=False)))
            else:
                self._start(attempt)
        if refused:
            await asyncio.gather(*refused)

    def _start(self, attempt: Attempt) -> None:
        claim = attempt.claim
        if claim.turn.attempt == 1:
            self._ports.observers.tell(Observer.due, claim)
        self._ports.observers.tell(Observer.claimed, claim)
        if attempt.company == "nobody":
            self._company.close()
        self._cancelling.is_over(claim.key)
        self._latest[claim.key] = attempt
        self._running[attempt] = self._loop.create_task(self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        observers = self._ports.observers
        try:
            settlement = await (self._run_alone(attempt) if attempt.company == "nobody" else attempt.run())
            if settlement is not None:
                observers.tell_settled(attempt.claim, settlement, attempt.error)
            elif attempt.is_pending:
                self._cancelling.promised(attempt.claim)
        except ClaimLost:
            await self._tell_lost(attempt)
        except StoreUnavailable:
            text = "A turn could not be settled; it is handed over again when its lease ends"
            log.error(text, extra=_facts("answer", attempt.claim))
            observers.tell(Observer.unsettled, attempt.claim)
        finally:
            del self._running[attempt]
            self._sending -= attempt.is_sending
            if attempt.company == "nobody":
                self._company.open()
            if self._latest.get(attempt.claim.key) is attempt:
                del self._latest[attempt.claim.key]
            self._alarm.wake()

    async def _tell_lost(self, attempt: Attempt) -> None:
        claim, observers = attempt.claim, self._ports.observers
        status = await attempt.withdrawn_as()
        if status:
            observers.tell_withdrawn(claim.key, claim.turn.id, status)
            return
        log.warning("A claim was lost; its result counts for nothing", extra=_facts("answer", claim))
        observers.tell(Observer.lost, claim)

    async def _run_alone(self, attempt: Attempt) -> Settlement | None:
        async with self._company.alone(attempt) as pause_ms:
            if not pause_ms:
                return await attempt.run()
        await self._let_go(attempt, Retry(pause_ms, is_failure=False, is_tried=False))
        return None

    async def _let_go(self, attempt: Attempt, retry: Retry) -> None:
        """The turn was begun here and is not answered."""
        if await self._hand_back(attempt, retry):
            self._ports.observers.tell(Observer.handed_back, attempt.claim)

    async def _hand_back(self, attempt: Attempt, retry: Retry) -> bool:
        try:
            await attempt.held.settle(retry)
        except (ClaimLost, StoreUnavailable):
            log.warning("A turn could not be handed back", extra=_facts("hand back", attempt.claim))
            return False
        return True


def _facts(action: str, claim: Claim) -> dict[str, str]:
    return {"action": action, "conversation": str(claim.key), "turn": claim.turn.id}
