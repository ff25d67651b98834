"""A whole store as a value: what every store must equal.

`memory://` is this class behind `async`. It keeps conversations, messages, closed turns and dead letters in
dictionaries and leaves every decision to `rules/transitions.py`.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from turntake.rules import reports, retried_letters, touching, transitions
from turntake.rules.arriving import arrive
from turntake.rules.buffer import arrival_at
from turntake.rules.conversation import (
    Change,
    Closed,
    Conversation,
    Lease,
    Progress,
    ReplyReport,
    Settlement,
    Stop,
    Touch,
)
from turntake.rules.fairness import ClaimOrder, DueTurn, in_lanes
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message, as_said, in_order
from turntake.rules.records import (
    Append,
    Appended,
    Claim,
    ClosedPoint,
    IsChosen,
    IsOurs,
    Letter,
    Looked,
    Snapshot,
    TurnRecord,
    appended,
    appended_stop,
    arrived,
    letter_of,
    shown,
)
from turntake.rules.rules import RulesByAgent


class Model:
    """Every operation takes `now`; nothing here waits, fails or forgets by itself."""

    def __init__(self) -> None:
        self.conversations: dict[ConversationKey, Conversation] = {}
        self.messages: dict[ConversationKey, dict[int, Message]] = {}
        self.ids: dict[ConversationKey, set[str]] = {}
        self.forgotten_ids: dict[ConversationKey, dict[str, int]] = {}
        self.owners: dict[str, ConversationKey] = {}
        self.closed: dict[str, Closed] = {}
        self.letters: dict[str, Closed] = {}

    def append(self, arrivals: Sequence[Append], now: int) -> list[Appended]:
        return [self._append(arrival, now) for arrival in arrivals]

    def touch(self, key: ConversationKey, touch: Touch, rules: RulesByAgent, now: int) -> Conversation | None:
        before = self.conversations.get(key)
        if before is None:
            return None
        return self._put(key, touching.touch(before, key, touch, rules, now))

    def claim(self, limit: int, lease_ms: int, now: int, order: ClaimOrder | None = None) -> list[Claim]:
        due = sorted(
            DueTurn(due_at, str(key), key)
            for key, conversation in self.conversations.items()
            if (due_at := conversation.due_at) is not None and due_at <= now
        )
        if order is not None:
            lanes = (order.lane_of(turn.key, self._at(turn.key).agent if order.is_by_agent else "") for turn in due)
            due = order.first(in_lanes(zip(due, lanes, strict=True)), limit)
        return [self._claim(key, lease_ms, now) for _, _, key in due[:limit]]

    def extend(self, claims: Iterable[Claim], lease_ms: int, now: int, lease: Lease | None = None) -> list[bool]:
        return [self._keep(c.key, transitions.extend(self._at(c.key), c, lease_ms, now, lease)) for c in claims]

    def save(self, claim: Claim, progress: Progress, lease_ms: int = 0, now: int = 0) -> bool:
        change = transitions.save(self._at(claim.key), claim, progress, lease_ms, now)
        return change is not None and not self._is_withdrawn(claim.key, change)

    def absorb(self, claim: Claim, rules: RulesByAgent, now: int) -> Claim | None:
        conversation = transitions.absorb(self._at(claim.key), claim, rules, now)
        if conversation is None:
            return None
        self.conversations[claim.key] = conversation
        return self._claim_of(claim.key, conversation)

    def settle(self, claim: Claim, settlement: Settlement, now: int) -> bool:
        """Whether the settlement stands; repeating one's own changes nothing and says so."""
        change = transitions.settle(self._at(claim.key), claim, settlement, now)
        if change is None:
            closed = self.closed.get(claim.turn.id)
            return closed is not None and transitions.is_same(closed, claim, settlement)
        return not self._is_withdrawn(claim.key, change)

    def next_due(self) -> int | None:
        return min((at for c in self.conversations.values() if (at := c.due_at) is not None), default=None)

    def find(self, key: ConversationKey) -> Snapshot | None:
        conversation = self.conversations.get(key)
        if conversation is None:
            return None
        ranges = (
            self._range(key, numbers.start, numbers.stop - 1) for numbers in transitions.shown_ranges(conversation)
        )
        return Snapshot(key, conversation, tuple(chain.from_iterable(map(as_said, ranges))))

    def turn(self, turn_id: str) -> TurnRecord | None:
        key = self.owners.get(turn_id)
        if key is None:
            return None
        conversation = self.conversations[key]
        closed = self.closed.get(turn_id)
        if closed is not None:
            messages = shown(closed, self._range(key, closed.numbers.start, closed.tail))
            return TurnRecord(key, turn_id, closed.status, closed.epoch, closed.turn, messages, closed)
        # A turn without a record of its end is open.
        (turn,) = (turn for turn in conversation.open_turns if turn.id == turn_id)
        messages = in_order(as_said(self._range(key, turn.head, turn.tail)))
        return TurnRecord(key, turn_id, turn.state, conversation.epoch, turn, messages)

    def letter(self, letter_id: str) -> Letter | None:
        closed = self.letters.get(letter_id)
        if closed is None:
            return None
        key = self.owners[letter_id]
        return letter_of(key, closed, in_order(as_said(self._range(key, closed.head, closed.tail))))

    def retry_letter(self, letter_id: str, now: int) -> Conversation | None:
        """The rest of its answer is to be sent; or, without a complete answer, its messages wait again with new
        numbers. Due at once either way. None if there is no such letter."""
        closed = self.letters.pop(letter_id, None)
        if closed is None:
            return None
        key = self.owners[letter_id]
        messages, conversation = self.messages[key], self.conversations[key]
        if closed.is_resumable:
            del self.closed[letter_id]
            self.conversations[key] = retried_letters.resume(conversation, closed, now)
            return self.conversations[key]
        moved = self._range(key, closed.head, closed.tail)
        for new_seq, message in enumerate(moved, conversation.next_seq):
            messages[new_seq] = msgspec.structs.replace(messages.pop(message.seq), seq=new_seq)
        amendments = sum(message.is_amendment for message in moved)
        self.conversations[key] = retried_letters.requeue(conversation, closed, len(moved), amendments, now)
        return self.conversations[key]

    def report(self, turn_id: str, report: ReplyReport, is_ours: IsOurs, now: int) -> ConversationKey | None:
        """Notes what became of a reply, if that is news; whose it was."""
        key = self.owners.get(turn_id)
        if key is None or not is_ours(key):
            return None
        closed = self.closed.get(turn_id)
        if closed is None:
            return key if self._keep(key, reports.report(self._at(key), turn_id, report)) else None
        is_ended = closed.is_letter and turn_id not in self.letters
        noted = None if is_ended else reports.report_closed(closed, report, now)
        if noted is None:
            return None
        self._put(key, Change(self._at(key), noted))
        return key

    def discard_letter(self, letter_id: str) -> bool:
        return self.letters.pop(letter_id, None) is not None

    def discard_letters(self, before: int) -> int:
        """Discards the letters that are older than `before`; returns how many."""
        old = [letter_id for letter_id, closed in self.letters.items() if closed.at < before]
        return sum(self.discard_letter(letter_id) for letter_id in old)

    def forget(self, before: int, ids_before: int | None = None) -> int:
        """Drops turns closed earlier than `before` with their messages, and ids of turns closed earlier than
        `ids_before` too. What is open or dead stays; a conversation of which nothing is left goes."""
        ids_before = before if ids_before is None else ids_before
        ids = [(k, id) for k, times in self.forgotten_ids.items() for id, at in times.items() if at < ids_before]
        turns = [c for c in self.closed.values() if c.at < before and c.id not in self.letters]
        for closed in turns:
            self._forget(closed, is_id_kept=closed.at >= ids_before)
        for key, id in ids:
            del self.forgotten_ids[key][id]
            self.ids[key].discard(id)
        self._drop_empty()
        return len(turns) + len(ids)

    def forget_chosen(
        self, is_chosen: IsChosen, after: ClosedPoint, before: int, ids_before: int | None = None
    ) -> Looked:
        """Of the turns closed after a point and earlier than `before`, drops those that are chosen, in the same way."""
        ids_before = before if ids_before is None else ids_before
        looked_at = [c for c in self.closed.values() if (c.at, c.id) > after and c.at < before]
        looked_at = [closed for closed in looked_at if closed.id not in self.letters]
        chosen = [c for c in looked_at if is_chosen(self.owners[c.id], c.turn.agent if c.turn else "")]
        for closed in chosen:
            self._forget(closed, is_id_kept=closed.at >= ids_before)
        self._drop_empty()
        last = max((ClosedPoint(closed.at, closed.id) for closed in looked_at), default=after)
        return Looked(len(chosen), last, is_end=True)

    def _at(self, key: ConversationKey) -> Conversation:
        return self.conversations.get(key, Conversation())

    def _append(self, arrival: Append, now: int) -> Appended:
        key, message = arrival.key, arrival.message
        before = self._at(key)
        at = arrival_at(before, now)
        change = arrive(before, arrival, now, len(msgspec.msgpack.encode(message)))
        if change is None:
            return appended(before, "ignored")
        ids = self.ids.setdefault(key, set())
        if message.id in ids:
            return appended(before, "duplicate")
        ids.add(message.id)
        if isinstance(change, Stop):
            answer = self._stop(key, change)
        else:
            self._put(key, change)
            answer = arrived(arrival, before, change)
        stored = msgspec.structs.replace(message, seq=answer.seq, received_at=at)
        self.messages.setdefault(key, {})[answer.seq] = stored
        return answer

    def _claim(self, key: ConversationKey, lease_ms: int, now: int) -> Claim:
        conversation = transitions.claim(self.conversations[key], key, lease_ms, now)
        self.conversations[key] = conversation
        turn = conversation.turn
        assert turn is not None
        self.owners[turn.id] = key
        self.closed.pop(turn.id, None)
        return self._claim_of(key, conversation)

    def _claim_of(self, key: ConversationKey, conversation: Conversation) -> Claim:
        turn = conversation.turn
        assert turn is not None
        messages = in_order(as_said(self._range(key, turn.head, turn.tail)))
        return Claim(key, conversation.epoch, turn, messages)

    def _stop(self, key: ConversationKey, stop: Stop) -> Appended:
        self.owners[stop.turn.id] = key
        self.conversations[key] = stop.conversation
        for closed in stop.ended:
            self._put(key, Change(stop.conversation, closed))
        return appended_stop(stop)

    def _is_withdrawn(self, key: ConversationKey, change: Change) -> bool:
        """Keeps the change; whether it took the turn away from its claim."""
        self._put(key, change)
        return change.closed is not None and change.closed.is_withdrawn

    def _put(self, key: ConversationKey, change: Change) -> Conversation:
        self.conversations[key] = change.conversation
        closed = change.closed
        if closed is not None:
            self.owners[closed.id] = key
            self.closed[closed.id] = closed
            if closed.is_letter:
                self.letters[closed.id] = closed
        return change.conversation

    def _keep(self, key: ConversationKey, conversation: Conversation | None) -> bool:
        if conversation is None:
            return False
        self.conversations[key] = conversation
        return True

    def _range(self, key: ConversationKey, head: int, tail: int) -> tuple[Message, ...]:
        messages = self.messages.get(key, {})
        return tuple(messages[seq] for seq in range(head, tail + 1) if seq in messages)

    def _forget(self, closed: Closed, is_id_kept: bool) -> None:
        del self.closed[closed.id]
        key = self.owners.pop(closed.id)
        if closed.status == "interrupted":
            return
        for seq in closed.numbers:
            message = self.messages[key].pop(seq, None)
            if message is not None and is_id_kept:
                self.forgotten_ids.setdefault(key, {})[message.id] = closed.at
            elif message is not None:
                self.ids[key].discard(message.id)

    def _drop_empty(self) -> None:
        """Conversations of which nothing is left: no turn, no message, no id."""
        owners = set(self.owners.values())
        for key, conversation in list(self.conversations.items()):
            if conversation.state == "idle" and not self.messages[key] and not self.ids[key] and key not in owners:
                del self.conversations[key], self.ids[key], self.messages[key]
                self.forgotten_ids.pop(key, None)
