"""Turns that somebody else finishes: an agent that answered 202 and reports through the API."""

from random import random
from typing import NamedTuple

from msgspec.structs import replace

from turntake.buffer.store import Store
from turntake.claim.replying import storable
from turntake.deliver.outbound import Outbound
from turntake.rules.conversation import Answered, Retry, Settlement
from turntake.rules.records import Claim, TurnRecord
from turntake.rules.retry import after_failure
from turntake.rules.scopes import RulesFor


class ReportedTurn(NamedTuple):
    """A turn as it stands after a report from outside; and if the report changed anything, the claim that it ended,
    and how."""

    record: TurnRecord | None
    claim: Claim | None = None
    settlement: Settlement | None = None


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
        return ReportedTurn(record, claim, settlement) if is_ended else ReportedTurn(record)

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
