"""Turns that somebody else works on: an agent that reports through the API, or asks there what came meanwhile."""

from random import random
from typing import NamedTuple

from msgspec.structs import replace

from turntake.buffer.store import Store
from turntake.claim.replying import storable
from turntake.deliver.outbound import Outbound
from turntake.rules.busy import was_stale
from turntake.rules.conversation import Answered, Retry, Settlement
from turntake.rules.message import Message
from turntake.rules.records import Claim, TurnRecord, waiting_behind
from turntake.rules.retry import after_failure
from turntake.rules.scopes import RulesFor

# For an agent that waits for arrivals over HTTP: soon enough for a person, too seldom for the store to notice.
LOOK_MS = 500


class ReportedTurn(NamedTuple):
    """A turn as it stands after a report from outside; and if the report changed anything, the claim that it ended,
    and how. Without a settlement, the answer was stale and is not sent."""

    record: TurnRecord | None
    claim: Claim | None = None
    settlement: Settlement | None = None


class AbsorbingTurn(NamedTuple):
    """A turn that was to absorb what waits; the claim with all of it, if it is being answered; and what is new."""

    record: TurnRecord | None
    claim: Claim | None = None
    absorbed: tuple[Message, ...] = ()


class TurnArrivals(NamedTuple):
    """A turn, and what waits behind it."""

    record: TurnRecord
    messages: tuple[Message, ...]


class Completion:
    """Acts for the latest claim of a turn. The first result stands; a later one changes nothing."""

    def __init__(self, store: Store, outbound: Outbound, rules_for: RulesFor) -> None:
        self._store = store
        self._outbound = outbound
        self._rules_for = rules_for

    async def complete(self, turn_id: str, replies: tuple[str, ...]) -> ReportedTurn:
        """The turn with its answer: this one, or the one it already had. No record if there is no such turn.

        An answer that must leave is saved and handed back in one step: whoever claims the turn next only sends it.
        """
        record = await self._store.history.turn(turn_id)
        claim = _open_claim(record)
        if claim is None or claim.turn.progress.is_final:
            return ReportedTurn(record)
        before, replies = claim.turn.progress, tuple(map(storable, replies))
        settlement: Settlement = Answered(before.replies + replies)
        if self._outbound.can_send(claim.key):
            parts = tuple(part for reply in replies for part in self._outbound.parts(claim.key, reply))
            progress = replace(before, replies=before.replies + parts, is_final=True, ends=())
            settlement = Retry(after_ms=0, is_failure=False, progress=progress)
        return await self._settle(claim, settlement)

    async def fail(
        self, turn_id: str, error: str, retry_after_ms: int | None = None, attempt: int | None = None
    ) -> ReportedTurn:
        """The turn after a failed attempt; the agent may say how long to wait before the next.

        A report again, or of an attempt that is no longer the latest, changes nothing.
        """
        record = await self._store.history.turn(turn_id)
        claim = _open_claim(record)
        if claim is None or claim.turn.progress.is_final or not claim.turn.is_leased:
            return ReportedTurn(record)
        if attempt not in (None, claim.turn.attempt):
            return ReportedTurn(record)
        now = self._store.clock.now()
        settlement = after_failure(claim.turn, self._rules_for(claim.key, claim.turn.agent), error, now, random())
        if retry_after_ms is not None and isinstance(settlement, Retry):
            settlement = Retry(retry_after_ms, error=error)
        return await self._settle(claim, settlement)

    async def _settle(self, claim: Claim, settlement: Settlement) -> ReportedTurn:
        is_ended = await self._store.settle(claim, settlement)
        record = await self._store.history.turn(claim.turn.id)
        if not is_ended:
            is_stale = record is not None and was_stale(record.closed, claim.epoch)
            return ReportedTurn(record, claim if is_stale else None)
        return ReportedTurn(record, claim, settlement)

    async def absorb(self, turn_id: str) -> AbsorbingTurn:
        """The turn with what waited behind it, as far as the rules let it."""
        record = await self._store.history.turn(turn_id)
        claim = _open_claim(record)
        if record is None or claim is None:
            return AbsorbingTurn(record)
        grown = await self._store.absorb(claim, self._rules_for(claim.key, claim.turn.agent))
        if grown is None:
            return AbsorbingTurn(await self._store.history.turn(turn_id))
        after = TurnRecord(record.key, turn_id, grown.turn.state, grown.epoch, grown.turn, grown.messages)
        return AbsorbingTurn(after, grown, tuple(m for m in grown.messages if m.seq > claim.turn.tail))

    async def arrivals(self, turn_id: str, wait_ms: int) -> TurnArrivals | None:
        """What waits behind a turn while it is answered, as soon as there is something or so much time has passed.

        Nothing waits behind a turn that is over. None if there is no such turn.
        """
        until_at = self._store.clock.now() + wait_ms
        while True:
            record = await self._store.history.turn(turn_id)
            if record is None:
                return None
            claim, found = _open_claim(record), await self._store.find(record.key)
            waiting = () if claim is None or found is None else waiting_behind(found, claim)
            left_ms = until_at - self._store.clock.now()
            if waiting or claim is None or left_ms <= 0:
                return TurnArrivals(record, waiting)
            await self._store.clock.sleep(min(LOOK_MS, left_ms))

    async def extend(self, turn_id: str, lease_ms: int | None, default_ms: int) -> TurnRecord | None:
        """The turn with a lease of `lease_ms` from now, or at least of the default; if it is open and claimed."""
        claim = _open_claim(await self._store.history.turn(turn_id))
        if claim is not None:
            remaining_ms = claim.turn.due_at - self._store.clock.now()
            await self._store.extend([claim], lease_ms or max(default_ms, remaining_ms))
        return await self._store.history.turn(turn_id)


def _open_claim(record: TurnRecord | None) -> Claim | None:
    if record is None or record.closed is not None or record.turn is None:
        return None
    return Claim(record.key, record.epoch, record.turn, record.messages)
