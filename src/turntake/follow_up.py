"""Whoever in this process must know of a step that is stored: the alarm, the worker, those who observe, the person."""

from contextlib import suppress

from msgspec.structs import replace

from turntake.arrival import Arrival, Receipt
from turntake.buffer.store import Store
from turntake.claim.alarm import Alarm
from turntake.claim.completion import AbsorbingTurn, ReportedTurn
from turntake.claim.worker import Worker
from turntake.deliver.notices import Notices
from turntake.observe.observer import Observer, Observers
from turntake.rules.conversation import Conversation, Retry, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.records import Append, Appended


class FollowUp:
    """Each method is called once its step is durable. A process that only accepts has no worker to tell."""

    def __init__(
        self, store: Store, alarm: Alarm, observers: Observers, notices: Notices, worker: Worker | None
    ) -> None:
        self._store = store
        self._alarm = alarm
        self._observers = observers
        self._notices = notices
        self._worker = worker

    def appended(self, arrival: Append, appended: Appended) -> Receipt:
        """The receipt, once everybody who must know of the message does."""
        key, message = arrival.key, arrival.message
        if appended.status == "buffered":
            self._wake(arrival, appended)
            if appended.interrupted is not None:
                self._observers.tell(Observer.interrupted, key, appended.interrupted)
            for turn_id in appended.stopped:
                self._observers.tell(Observer.stopped, key, turn_id)
            self._observers.tell(Observer.received, key, message, appended)
        elif appended.rejected is not None:
            self._notices.send(key, appended.rejected, message, appended.notice)
            self._observers.tell(Observer.rejected, key, message, appended)
        else:
            is_known = appended.status == "duplicate"
            self._observers.tell(Observer.ignored, key, message, "duplicate" if is_known else "nothing to amend")
        return Receipt(appended.status, key, appended.waiting, appended.due_at, appended.reason)

    def blank(self, arrival: Arrival) -> Receipt:
        """The receipt of a message without words, which no store keeps."""
        self._observers.tell(Observer.ignored, arrival.key, arrival.message, "blank")
        return Receipt("ignored", arrival.key)

    def touched(self, key: ConversationKey, touch: Touch, conversation: Conversation) -> None:
        """A sign of life or an order was carried out."""
        if conversation.due_at is not None:
            self._alarm.ring(self._store.wake_at(key, conversation.due_at))
        self._observers.tell(Observer.touched, key, touch, conversation)

    def reported(self, reported: ReportedTurn) -> None:
        """A turn was finished from outside: whoever still works on it here may stop, and what waits may go."""
        record, claim, settlement = reported
        if record is None or claim is None:
            return
        if self._worker is not None:
            self._worker.finished_elsewhere(claim)
        self._alarm.wake()
        if settlement is None:
            self._observers.tell_withdrawn(claim.key, claim.turn.id, record.status)
        elif isinstance(settlement, Retry) and settlement.progress is not None:
            self._observers.tell(Observer.completed, claim, settlement.progress.replies)
        else:
            self._observers.tell_settled(claim, settlement, None)

    def absorbed(self, grown: AbsorbingTurn) -> None:
        """A turn took in what waited, on request from outside."""
        if grown.claim is None or not grown.absorbed:
            return
        if self._worker is not None:
            self._worker.absorbed(grown.claim)
        self._observers.tell(Observer.absorbed, grown.claim, grown.absorbed)

    def resumed(self) -> None:
        """Messages of a dead letter wait again."""
        self._alarm.wake()

    async def listen(self, worker: Worker) -> None:
        """What other processes did: wakes for deadlines that they set, and lets go of answers that they stopped."""
        async for hint in self._store.hints():
            self._alarm.ring(hint.due_at)
            for key, turn_id, epoch in hint.interrupted:
                with suppress(ValueError):
                    worker.interrupt(ConversationKey.parse(key), turn_id, epoch)
            for key in hint.offered:
                with suppress(ValueError):
                    worker.offered(ConversationKey.parse(key))

    def _wake(self, arrival: Append, appended: Appended) -> None:
        """Tells the worker here of a new deadline, of an interruption, or of a message during its answer."""
        if appended.due_at is not None:
            self._alarm.ring(self._store.wake_at(arrival.key, appended.due_at))
        if self._worker is None:
            return
        if appended.interrupted is not None:
            self._worker.interrupt(arrival.key, appended.interrupted)
        elif appended.state in ("answering", "replying"):
            message = replace(arrival.message, seq=appended.seq, received_at=self._store.clock.now())
            self._worker.arrived(arrival.key, message)
