"""Tells watchers what happens to conversations. Nothing is put together while nobody watches."""

from typing import Any

from turntake.claim.attempt import Attempt
from turntake.clock import Clock
from turntake.observe.stream import Event, Events, Kind
from turntake.rules.conversation import Answered, Conversation, Dead, Retry, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.records import Appended, Claim, TurnRecord


class Announcer:
    """One method for each thing worth telling."""

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock

    def arrived(self, key: ConversationKey, message_id: str, appended: Appended) -> None:
        if not self._events.is_watched:
            return
        if appended.interrupted is not None:
            self._say("interrupted", key, appended.interrupted)
        self._say(
            "buffered",
            key,
            message_id=message_id,
            messages=appended.waiting,
            due_at=appended.due_at,
            reason=appended.reason,
        )

    def touched(self, key: ConversationKey, order: Touch, conversation: Conversation) -> None:
        if not self._events.is_watched:
            return
        buffer = conversation.buffer
        if order.kind == "clear":
            self._say("dead-lettered", key, reason="cleared by order")
        elif buffer is not None:
            self._say("activity", key, order=order.kind, due_at=buffer.due.at, reason=buffer.due.reason)

    def claimed(self, claim: Claim) -> None:
        if not self._events.is_watched:
            return
        turn = claim.turn
        due: dict[str, Any] = {"due_at": turn.due.at, "reason": turn.due.reason}
        if turn.attempt == 1:
            self._say("due", claim.key, turn.id, **due)
        self._say(
            "claimed",
            claim.key,
            turn.id,
            attempt=turn.attempt,
            messages=len(claim.messages),
            buffered_at=claim.first_at,
            claimed_at=turn.claimed_at if turn.attempt == 1 else self._clock.now(),
            lease_until_at=turn.due_at,
            **due,
        )

    def ended(self, attempt: Attempt) -> None:
        if not self._events.is_watched:
            return
        claim, settlement = attempt.claim, attempt.settlement
        key, turn = claim.key, claim.turn
        if isinstance(settlement, Answered):
            self._say("answered", key, turn.id, attempt=turn.attempt, replies=list(settlement.replies))
        elif isinstance(settlement, Retry):
            kind: Kind = "failed" if settlement.is_failure else "retrying"
            self._say(kind, key, turn.id, attempt=turn.attempt, retry_after_ms=settlement.after_ms)
        elif isinstance(settlement, Dead):
            self._say("dead-lettered", key, turn.id, attempt=turn.attempt, reason=settlement.reason)

    def reported(self, record: TurnRecord) -> None:
        """Somebody completed or failed a turn through the API."""
        turn, closed = record.turn, record.closed
        if not self._events.is_watched or turn is None:
            return
        facts: dict[str, Any] = {"attempt": turn.attempt}
        if closed is None and not turn.progress.is_final:
            self._say("failed", record.key, record.id, retry_after_ms=max(0, turn.due_at - self._clock.now()), **facts)
        elif record.status == "answered":
            self._say("answered", record.key, record.id, replies=list(turn.progress.replies), **facts)
        elif closed is not None:
            self._say("dead-lettered", record.key, record.id, reason=closed.reason, **facts)

    def _say(self, kind: Kind, key: ConversationKey, turn_id: str = "", **facts: Any) -> None:
        self._events.publish(Event(kind, self._clock.now(), key, turn_id, facts))
