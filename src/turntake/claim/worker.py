"""Takes what is due, one attempt each, many at a time, under leases it keeps extending."""

import asyncio
import logging
from collections.abc import Callable
from typing import Annotated

import msgspec

from turntake.buffer.store import Store
from turntake.claim.alarm import Alarm
from turntake.claim.attempt import Attempt
from turntake.clock import DAY_MS
from turntake.deliver.outbound import Outbound
from turntake.deliver.sink import Sink
from turntake.errors import ClaimLost, StoreUnavailable
from turntake.rules.conversation import Retry
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Claim
from turntake.rules.rules import Milliseconds, Rules

log = logging.getLogger("turntake")

STORE_PAUSE_MS = 500
NOTHING_THERE_MS = 5
STUBBORN_S = 1.0
A_CROWD = 10  # who meets so many at once need not look whether there are more


class WorkerOptions(msgspec.Struct, frozen=True):
    """`[worker]`: how many turns at a time, and for how long."""

    concurrency: Annotated[
        int, msgspec.Meta(ge=1, le=100_000, description="How many turns are answered at the same time.")
    ] = 100
    lease_ms: Annotated[
        int, msgspec.Meta(ge=100, le=DAY_MS, description="How long a claim lasts unless the worker extends it.")
    ] = 60_000
    shutdown_ms: Annotated[
        Milliseconds, msgspec.Meta(description="How long answers may take to finish when stopping.")
    ] = 10_000


class Worker:
    """`on_claim` and `on_end` hear of each attempt; they must not wait."""

    def __init__(
        self,
        store: Store,
        sink: Sink,
        outbound: Outbound,
        rules_for: Callable[[ConversationKey], Rules],
        alarm: Alarm,
        options: WorkerOptions,
        on_claim: Callable[[Claim], None],
        on_end: Callable[[Attempt], None],
    ) -> None:
        self._store = store
        self._sink = sink
        self._outbound = outbound
        self._rules_for = rules_for
        self._alarm = alarm
        self._concurrency = options.concurrency
        self._lease_ms = options.lease_ms
        self._shutdown_ms = options.shutdown_ms
        self._on_claim = on_claim
        self._on_end = on_end
        self._running: dict[Attempt, asyncio.Task[None]] = {}
        self._latest: dict[ConversationKey, Attempt] = {}
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._extend_at = 0

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._keep_leases())]

    async def _work(self) -> None:
        """Claims until `stop`; a store that is away for a while is waited for."""
        look_at = None
        while not self._is_stopping:
            try:
                look_at = await self._take_due(look_at)
            except Exception as error:
                log.error("Nothing could be claimed", extra={"action": "claim", "error": type(error).__name__})
                look_at = self._store.clock.now() + STORE_PAUSE_MS
            await self._alarm.sleep(look_at)

    async def stop(self) -> None:
        """Claims nothing more, lets handlers finish for `shutdown_ms`, then hands back what is left."""
        self._is_stopping = True
        self._alarm.wake()
        working, heart = self._tasks
        await asyncio.wait([working])
        if self._running:
            await asyncio.wait(self._running.values(), timeout=self._shutdown_ms / 1000)
        handed_back = dict(self._running)
        for task in handed_back.values():
            task.cancel()
        if handed_back:
            await asyncio.wait(handed_back.values(), timeout=STUBBORN_S)
        await asyncio.gather(*(self._hand_back(attempt) for attempt in handed_back))
        heart.cancel()

    def interrupt(self, key: ConversationKey, turn_id: str, epoch: int | None = None) -> None:
        """The turn is no longer to be answered: its handler is cancelled. Its result would be refused anyway.

        With `epoch`, only that claim's: whoever took the turn since, perhaps to send its answer, goes on.
        """
        attempt = self._latest.get(key)
        if attempt is not None and attempt.claim.turn.id == turn_id and epoch in (None, attempt.claim.epoch):
            self._running[attempt].cancel()

    def arrived(self, key: ConversationKey, message: Message) -> None:
        """A message came in for a conversation that is being answered here."""
        attempt = self._latest.get(key)
        if attempt is not None:
            attempt.arrived(message)

    @property
    def running(self) -> int:
        return len(self._running)

    async def _take_due(self, known_at: int | None) -> int | None:
        """Claims until nothing is due or every slot is taken; returns when to look again.

        Once the deadline that the last look saw has come, it claims first and looks for the next one afterwards.
        """
        is_due = known_at is not None and known_at <= self._store.clock.now()
        while not self._is_stopping:
            free = self._concurrency - len(self._running)
            if free <= 0:
                return None
            now = self._store.clock.now()
            if not is_due:
                due_at = await self._store.next_due()
                if due_at is None or due_at > now:
                    return due_at
            if now >= self._extend_at:
                await self._extend()
            claims = await self._store.claim(free, self._lease_ms)
            for claim in claims:
                self._start(claim)
            if not claims and not is_due:
                return now + NOTHING_THERE_MS
            is_due = len(claims) >= min(free, A_CROWD)
        return None

    def _start(self, claim: Claim) -> None:
        self._on_claim(claim)
        attempt = Attempt(claim, self._store, self._sink, self._outbound, self._rules_for(claim.key), self._lease_ms)
        self._latest[claim.key] = attempt
        self._running[attempt] = asyncio.create_task(self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        claim = attempt.claim
        facts = {"action": "answer", "conversation": str(claim.key), "turn": claim.turn.id}
        try:
            await attempt.run()
        except ClaimLost:
            log.warning("A claim was lost; its result counts for nothing", extra=facts)
        except StoreUnavailable:
            log.error("A turn could not be settled; it is handed over again when its lease ends", extra=facts)
        finally:
            del self._running[attempt]
            if self._latest.get(claim.key) is attempt:
                del self._latest[claim.key]
            self._on_end(attempt)
            self._alarm.wake()

    async def _keep_leases(self) -> None:
        while True:
            await self._store.clock.sleep(self._lease_ms // 3)
            try:
                await self._extend()
            except Exception as error:
                log.warning("Leases were not extended", extra={"action": "extend", "error": type(error).__name__})

    async def _extend(self) -> None:
        """Keeps every running claim. It also runs before claiming, so a stalled process renews before it competes."""
        now = self._store.clock.now()
        enough = now + self._lease_ms
        attempts = [a for a in self._running if not a.is_pending and a.lease_until_at <= enough]
        kept = await self._store.extend([a.claim for a in attempts], self._lease_ms) if attempts else []
        self._extend_at = now + self._lease_ms // 3
        for attempt, is_kept in zip(attempts, kept, strict=True):
            if not is_kept and attempt in self._running and attempt.settlement is None:
                self._running[attempt].cancel()

    async def _hand_back(self, attempt: Attempt) -> None:
        try:
            await attempt.settle(Retry(after_ms=0, is_failure=False))
        except (ClaimLost, StoreUnavailable):
            log.warning("A turn could not be handed back", extra={"action": "stop", "turn": attempt.claim.turn.id})
