"""Takes what is due, runs one attempt for each claim, many at a time.

How this works: one loop asks the store when the next turn is due, sleeps on the alarm until then, and claims as many
turns as there are free slots. Each claim runs as a task of its own and wakes the loop when it ends, since that frees a
slot. The alarm also rings when a message sets an earlier deadline. Beside the loop, `LeaseKeeper` extends the leases of
all running attempts. A store that fails costs a pause, never the worker.
"""

import asyncio
import logging

from turntake.claim.alarm import Alarm
from turntake.claim.attempt import Attempt, Ports
from turntake.claim.leases import LeaseKeeper
from turntake.claim.options import WorkerOptions
from turntake.errors import ClaimLost, StoreUnavailable
from turntake.observe.observer import Observer
from turntake.rules.conversation import Retry
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Claim

log = logging.getLogger("turntake")

# A store that is away is asked twice a second: soon enough for people, too seldom to hold up its return.
STORE_PAUSE_MS = 500
# Something is due and others hold it for this moment. To ask again at once would only keep the store busy.
ALL_TAKEN_PAUSE_MS = 5
# A handler that catches its cancellation gets this long to end; then its turn is handed back without it.
CANCEL_GRACE_MS = 1_000
# A claim that brought so many at once says by itself that more may be due: claim again without asking first.
SKIP_RECHECK_AT = 10


class Worker:
    """Answers turns until it is stopped."""

    def __init__(self, ports: Ports, alarm: Alarm, options: WorkerOptions) -> None:
        self._ports = ports
        self._clock = ports.store.clock
        self._alarm = alarm
        self._options = options
        self._running: dict[Attempt, asyncio.Task[None]] = {}
        self._latest: dict[ConversationKey, Attempt] = {}
        self._leases = LeaseKeeper(ports.store, self._running, options.lease_ms)
        self._is_stopping = False
        self._hurried = asyncio.Event()

    def start(self) -> None:
        self._claiming = asyncio.create_task(self._claim_until_stopped())
        self._extending = asyncio.create_task(self._leases.run())

    async def stop(self) -> None:
        """Claims nothing more, lets handlers finish for `shutdown_ms`, then hands back what is left."""
        self._is_stopping = True
        self._alarm.wake()
        await asyncio.wait([self._claiming])
        if self._running:
            await self._let_finish()
        if unfinished := dict(self._running):
            for task in unfinished.values():
                task.cancel()
            await asyncio.wait(unfinished.values(), timeout=CANCEL_GRACE_MS / 1000)
            await asyncio.gather(*(self._hand_back(attempt) for attempt in unfinished))
        self._extending.cancel()

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def hurry(self) -> None:
        """Ends the time that a stop gives to handlers: what is left is handed back at once."""
        self._hurried.set()

    async def _let_finish(self) -> None:
        finished = asyncio.ensure_future(asyncio.wait(self._running.values()))
        hurried = asyncio.ensure_future(self._hurried.wait())
        timeout = self._options.shutdown_ms / 1000
        await asyncio.wait([finished, hurried], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finished.cancel()
        hurried.cancel()

    def interrupt(self, key: ConversationKey, turn_id: str, epoch: int | None = None) -> None:
        """The turn is no longer to be answered: its handler is cancelled. Its result would be refused anyway.

        With `epoch`, only that claim's: whoever took the turn since, perhaps to send its answer, goes on.
        """
        attempt = self._latest.get(key)
        if attempt is not None and attempt.claim.turn.id == turn_id and epoch in (None, attempt.claim.epoch):
            self._running[attempt].cancel()

    def arrived(self, key: ConversationKey, message: Message) -> None:
        """A message came in for a conversation that is being answered here."""
        if attempt := self._latest.get(key):
            attempt.arrived(message)

    async def _claim_until_stopped(self) -> None:
        look_at = None
        while not self._is_stopping:
            try:
                look_at = await self._claim_due(look_at)
            except Exception as error:
                log.error("Nothing could be claimed", extra={"action": "claim", "error": type(error).__name__})
                look_at = self._clock.now() + STORE_PAUSE_MS
            await self._alarm.sleep(look_at)

    async def _claim_due(self, known_at: int | None) -> int | None:
        """Claims until nothing is due or every slot is taken; returns when to look again.

        Once the deadline that the last look saw has come, it claims first and looks for the next one afterwards.
        """
        is_due = known_at is not None and known_at <= self._clock.now()
        while not self._is_stopping:
            free = self._options.concurrency - len(self._running)
            if free <= 0:
                return None
            now = self._clock.now()
            if not is_due:
                due_at = await self._ports.store.next_due()
                if due_at is None or due_at > now:
                    return due_at
            await self._leases.extend_if_late()
            claims = await self._ports.store.claim(free, self._options.lease_ms)
            if not claims and not is_due:
                return now + ALL_TAKEN_PAUSE_MS
            for claim in claims:
                self._start(claim)
            is_due = len(claims) >= min(free, SKIP_RECHECK_AT)
        return None

    def _start(self, claim: Claim) -> None:
        if claim.turn.attempt == 1:
            self._ports.observers.tell(Observer.due, claim)
        self._ports.observers.tell(Observer.claimed, claim)
        attempt = Attempt(claim, self._ports, self._options.lease_ms)
        self._latest[claim.key] = attempt
        self._running[attempt] = asyncio.create_task(self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        claim, observers = attempt.claim, self._ports.observers
        try:
            settlement = await attempt.run()
            if settlement is not None:
                observers.tell_settled(claim, settlement, attempt.error)
        except ClaimLost:
            log.warning("A claim was lost; its result counts for nothing", extra=_facts("answer", claim))
            observers.tell(Observer.lost, claim)
        except StoreUnavailable:
            text = "A turn could not be settled; it is handed over again when its lease ends"
            log.error(text, extra=_facts("answer", claim))
            observers.tell(Observer.unsettled, claim)
        finally:
            del self._running[attempt]
            if self._latest.get(claim.key) is attempt:
                del self._latest[claim.key]
            self._alarm.wake()

    async def _hand_back(self, attempt: Attempt) -> None:
        try:
            await attempt.held.settle(Retry(after_ms=0, is_failure=False))
            self._ports.observers.tell(Observer.handed_back, attempt.claim)
        except (ClaimLost, StoreUnavailable):
            log.warning("A turn could not be handed back", extra=_facts("stop", attempt.claim))


def _facts(action: str, claim: Claim) -> dict[str, str]:
    return {"action": action, "conversation": str(claim.key), "turn": claim.turn.id}
