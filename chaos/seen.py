"""A history, looked up by message, turn and conversation."""

from collections import defaultdict

from chaos.allowed import allowance, over_at, touches
from chaos.history import HandOver, History, Limits, Reply, Sending, conversation_of


class Seen:
    """Made once the run is over."""

    def __init__(self, history: History, limits: Limits) -> None:
        self.history = history
        self.limits = limits
        self.sendings: defaultdict[str, list[Sending]] = defaultdict(list)
        for sending in history.sendings:
            self.sendings[sending.message].append(sending)
        self.sent_at = {message: min(s.at for s in tries) for message, tries in self.sendings.items()}
        self.acknowledged_at = {
            message: min(s.ended_at for s in tries if s.is_acknowledged)
            for message, tries in self.sendings.items()
            if any(s.is_acknowledged for s in tries)
        }
        self.turns: defaultdict[str, list[HandOver]] = defaultdict(list)
        self.conversations: defaultdict[str, list[HandOver]] = defaultdict(list)
        for call in history.hand_overs:
            self.turns[call.turn_id].append(call)
            self.conversations[call.conversation].append(call)
        self.replies: defaultdict[str, list[Reply]] = defaultdict(list)
        for reply in history.replies:
            self.replies[reply.turn_id].append(reply)
        self.first_handed: dict[str, HandOver] = {}
        for call in history.hand_overs:
            for message in call.message_ids:
                self.first_handed.setdefault(message, call)
        self.undone = self._undone()
        """Conversations that somebody worked on while a store may have lost what was written."""

    def first_calls(self, conversation: str) -> list[HandOver]:
        """The conversation's turns, each by its first hand-over."""
        firsts: dict[str, HandOver] = {}
        for call in self.conversations[conversation]:
            firsts.setdefault(call.turn_id, call)
        return list(firsts.values())

    def conversation(self, turn_id: str) -> str:
        return self.turns[turn_id][0].conversation if turn_id in self.turns else ""

    def is_disturbed(self, start: float, end: float) -> bool:
        """Whether a claim may have been lost in that time: a fault was on, or had been less than a lease ago."""
        reach = self.limits.lease + self.limits.slack
        return any(fault.at <= end and over_at(fault) + reach >= start for fault in self.history.faults)

    def may_be_lost(self, message: str) -> bool:
        """Whether it was acknowledged by a store that lost its latest writes, and only then."""
        return all(self._acknowledged_in_vain(message))

    def may_have_been_lost(self, message: str) -> bool:
        """Whether a store that lost its latest writes acknowledged it; it may have come again since."""
        return any(self._acknowledged_in_vain(message))

    def _acknowledged_in_vain(self, message: str) -> list[bool]:
        """Of each acknowledgement, whether it may be worth nothing."""
        lossy = [fault for fault in self.history.faults if allowance(fault).loses_messages]
        times = [s.ended_at for s in self.sendings[message] if s.is_acknowledged]
        return [any(touches(fault, at) for fault in lossy) for at in times]

    def _undone(self) -> set[str]:
        undoing = [fault for fault in self.history.faults if allowance(fault).undoes_work]
        events = [(call.conversation, time) for call in self.history.hand_overs for time in (call.at, call.ended_at)]
        events += [(self.conversation(reply.turn_id), reply.at) for reply in self.history.replies]
        events += [(conversation_of(s.message), s.ended_at) for s in self.history.sendings]
        return {conversation for conversation, at in events if any(touches(fault, at) for fault in undoing)}
