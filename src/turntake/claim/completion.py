"""Turns that somebody else finishes: an agent that answered 202 and reports through the API."""

from collections.abc import Callable
from random import random
from typing import NamedTuple

from turntake.buffer.store import Store
from turntake.deliver.outbound import Outbound
from turntake.rules.key import ConversationKey
from turntake.rules.model import Claim, TurnRecord
from turntake.rules.retry import after_failure
from turntake.rules.turn import Answered, Progress, Retry, Touch
from turntake.rules.waiting import Rules


class Report(NamedTuple):
    """A turn as it stands after a report from outside, and the claim that the report ended, if it changed anything."""

    record: TurnRecord | None
    ended: Claim | None = None


class Completion:
    """Acts for the latest claim of a turn. The first result stands; a later one changes nothing."""

    def __init__(self, store: Store, outbound: Outbound, rules_for: Callable[[ConversationKey], Rules]) -> None:
        self._store = store
        self._outbound = outbound
        self._rules_for = rules_for

    async def complete(self, turn_id: str, replies: tuple[str, ...]) -> Report:
        """The turn with its answer: this one, or the one it already had. No record if there is no such turn."""
        record = await self._store.history.turn(turn_id)
        claim = _open_claim(record)
        if claim is None or claim.turn.progress.is_final:
            return Report(record)
        if not self._outbound.leads_out(claim.key):
            is_ended = await self._store.settle(claim, Answered(claim.turn.progress.replies + replies))
        else:
            progress = Progress(claim.turn.progress.replies + replies, claim.turn.progress.sent, is_final=True)
            is_ended = await self._store.save(claim, progress)
            if is_ended:
                await self._leave_to_worker(claim)
        return Report(await self._store.history.turn(turn_id), claim if is_ended else None)

    async def fail(self, turn_id: str, error: str, retry_after_ms: int | None) -> Report:
        """The turn after a failed attempt; the agent may say how long to wait before the next."""
        record = await self._store.history.turn(turn_id)
        claim = _open_claim(record)
        if claim is None or claim.turn.progress.is_final:
            return Report(record)
        now = self._store.clock.now()
        settlement = after_failure(claim.turn, self._rules_for(claim.key), error, claim.first_at, now, random())
        if retry_after_ms is not None and isinstance(settlement, Retry):
            settlement = Retry(retry_after_ms, error=error)
        is_ended = await self._store.settle(claim, settlement)
        return Report(await self._store.history.turn(turn_id), claim if is_ended else None)

    async def extend(self, turn_id: str, lease_ms: int) -> TurnRecord | None:
        """The turn with a longer lease, if it is open and claimed."""
        claim = _open_claim(await self._store.history.turn(turn_id))
        if claim is not None:
            await self._store.extend([claim], lease_ms)
        return await self._store.history.turn(turn_id)

    async def _leave_to_worker(self, claim: Claim) -> None:
        """Saved replies are sent like those of a crashed worker: by whoever claims the turn next, which is now."""
        await self._store.settle(claim, Retry(after_ms=0, is_failure=False))
        if not claim.turn.is_leased:  # it waits for a retry; only then, since a flush also ends the next turn's wait
            await self._store.touch(claim.key, Touch("flush"), self._rules_for(claim.key))


def _open_claim(record: TurnRecord | None) -> Claim | None:
    if record is None or record.closed is not None or record.turn is None:
        return None
    return Claim(record.key, record.epoch, record.turn, record.messages)
