"""One conversation in hand: what the store had, what the rules made of it, and what must be written for that.

How this works: a draft starts from a row, the conversation as the store had it with its version. Each operation asks
`rules/transitions.py` what becomes of the conversation and notes what that means for the store: messages to add or to
renumber, turns that opened or closed, dead letters that ended. Nothing is written meanwhile. Once every operation is
done, `encode` writes the conversation down and gives it a new version, and a backend takes all of it in one step, if
its row still has the old version. If not, the draft is thrown away and the operations run again on a new one.

These are the verbs of every durable store; `rules/model.py` has the same verbs for a store in memory.
"""

from random import getrandbits

import msgspec

from turntake.buffer.codec import decode_conversation, encode
from turntake.rules import reports, retried_letters, touching, transitions
from turntake.rules.arriving import arrive
from turntake.rules.buffer import arrival_at
from turntake.rules.busy import is_offered
from turntake.rules.conversation import (
    Change,
    Closed,
    Conversation,
    Lease,
    Progress,
    ReplyReport,
    SealedTurn,
    Settlement,
    Stop,
    Touch,
)
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended, Claim, appended, appended_stop, arrived
from turntake.rules.rules import RulesByAgent
from turntake.rules.transitions import open_ranges

# A million values: two histories of one row agree on a version once in a million writes. Lua counts exactly to 53 bits,
# of which 33 are left: room for the seconds since 1970 and five times as many writes.
RANDOM_BITS = 20


NOBODY = Conversation()


class Row(msgspec.Struct, frozen=True, gc=False):
    """A conversation as the store has it. Every write raises `version`; 0 is one that nobody wrote to yet.

    The last bits of a version are random: a server that lost its latest writes in a failover, and got others since, has
    other versions than anybody remembers.
    """

    version: int = 0
    conversation: Conversation = NOBODY


NEW = Row()
"""A conversation that nobody wrote to yet."""


def row_of(version: int, body: bytes) -> Row:
    """The row that was read; version 0 if there is none. Raises MsgspecError if it cannot be read."""
    return Row(version, decode_conversation(body)) if version else NEW


class Added(msgspec.Struct, frozen=True, gc=False):
    """A message with the number and the time it was given; `payload` is its bytes."""

    seq: int
    id: str
    received_at: int
    payload: bytes


class Draft(msgspec.Struct, gc=False):
    """Decides on a row, operation after operation. Nothing counts until the store has taken the whole draft.

    `known` are ids of messages that the store is known to hold already. `body` and `version` are given by `encode`. If
    the draft is refused, the row is to be kept for this process for `keep_ms`. It `is_offer` if it adds a message that
    whoever answers may absorb.
    """

    key: ConversationKey
    row: Row
    now: int
    known: frozenset[str] = frozenset()
    conversation: Conversation = NOBODY
    version: int = 0
    body: bytes = b""
    added: dict[str, Added] = {}
    moved: tuple[tuple[int, int], ...] = ()
    opened: tuple[SealedTurn, ...] = ()
    closed: tuple[Closed, ...] = ()
    ended: tuple[Closed, ...] = ()
    keep_ms: int = 0
    is_offer: bool = False

    def __post_init__(self) -> None:
        self.conversation, self.version = self.row.conversation, self.row.version

    @property
    def is_changed(self) -> bool:
        return self.conversation is not self.row.conversation or bool(self.ended or self.closed)

    @property
    def written(self) -> Row:
        """The row once the store has taken this draft, which was encoded before."""
        return Row(self.version, self.conversation) if self.body else self.row

    @property
    def open_from(self) -> int:
        """The number of the first message that is not settled; the next one's if there is none."""
        conversation = self.conversation
        if conversation.resumed:
            return min(numbers.start for numbers in open_ranges(conversation))
        if conversation.turn is not None:
            return conversation.turn.head
        return conversation.next_seq if conversation.buffer is None else conversation.buffer.head

    def encode(self) -> None:
        """Writes the conversation down, once all is decided."""
        if self.is_changed:
            self.body = encode(self.conversation)
            # A conversation that was forgotten may begin anew: its versions start from the time, in seconds, and are
            # beyond all that anybody remembers of it.
            count = (self.row.version >> RANDOM_BITS or self.now // 1000) + 1
            self.version = (count << RANDOM_BITS) | getrandbits(RANDOM_BITS)

    @property
    def is_there(self) -> bool:
        """Whether anybody ever wrote to this conversation."""
        return self.row.version > 0 or bool(self.added)

    def append(self, arrival: Append, payload: bytes) -> Appended:
        before, message_id = self.conversation, arrival.message.id
        at = arrival_at(before, self.now)
        change = arrive(before, arrival, self.now, len(payload))
        if change is None:
            return appended(before, "ignored")
        if message_id in self.added or message_id in self.known:
            return appended(before, "duplicate")
        if isinstance(change, Stop):
            answer = self._stop(change)
        else:
            answer = arrived(arrival, before, change)
            if before.turn is not None and answer.status == "buffered":
                self.is_offer |= is_offered(change.conversation, arrival.rules_in(before))
            self._put(change)
        self.added[message_id] = Added(answer.seq, message_id, at, payload)
        return answer

    def touch(self, touch: Touch, rules: RulesByAgent) -> Conversation | None:
        if not self.is_there:
            return None
        change = touching.touch(self.conversation, self.key, touch, rules, self.now)
        return self.conversation if change.conversation == self.conversation else self._put(change)

    def claim(self, lease_ms: int) -> SealedTurn | None:
        """The turn, if the conversation is still due."""
        due_at = self.conversation.due_at
        if due_at is None or due_at > self.now:
            return None
        is_new = self.conversation.turn is None
        self.conversation = transitions.claim(self.conversation, self.key, lease_ms, self.now)
        turn = self.conversation.turn
        assert turn is not None
        if is_new:
            self.opened = (turn,)
        return turn

    def extend(self, claim: Claim, lease_ms: int, lease: Lease | None = None) -> bool:
        return self._keep(transitions.extend(self.conversation, claim, lease_ms, self.now, lease))

    def let_go(self) -> bool:
        return self._keep(transitions.let_go(self.conversation, self.now))

    def save(self, claim: Claim, progress: Progress, lease_ms: int = 0) -> bool:
        return self._is_done(transitions.save(self.conversation, claim, progress, lease_ms, self.now))

    def absorb(self, claim: Claim, rules: RulesByAgent) -> SealedTurn | None:
        """The turn with all that it has by now; None if the claim was lost."""
        grown = transitions.absorb(self.conversation, claim, rules, self.now)
        if grown is None:
            return None
        self.conversation = grown
        return grown.turn

    def settle(self, claim: Claim, settlement: Settlement) -> bool:
        return self._is_done(transitions.settle(self.conversation, claim, settlement, self.now))

    def retry_letter(self, letter: Closed, messages: tuple[Message, ...]) -> Conversation:
        """The rest of its answer is to be sent; or its messages wait again, as they are stored, with new numbers."""
        if letter.is_resumable:
            self.conversation = retried_letters.resume(self.conversation, letter, self.now)
            self.opened = tuple(turn for turn in self.conversation.open_turns if turn.id == letter.id)
            return self.conversation
        seqs = sorted(message.seq for message in messages)
        self.moved = tuple((seq, new_seq) for new_seq, seq in enumerate(seqs, self.conversation.next_seq))
        amendments = sum(message.is_amendment for message in messages)
        self.conversation = retried_letters.requeue(self.conversation, letter, len(seqs), amendments, self.now)
        self.ended = (letter,)
        return self.conversation

    def report(self, turn_id: str, report: ReplyReport) -> bool:
        return self._keep(reports.report(self.conversation, turn_id, report))

    def report_closed(self, closed: Closed, report: ReplyReport) -> bool:
        """Whether it is news; then the turn's row is written anew."""
        noted = reports.report_closed(closed, report, self.now)
        if noted is None:
            return False
        self._put(Change(self.conversation, noted))
        return True

    def discard_letter(self, letter: Closed, messages: tuple[Message, ...]) -> bool:
        self.ended = (letter,)
        return True

    def set_back(self, by_ms: int) -> None:
        """The clock was ahead by so much and was put right."""
        self.conversation = transitions.set_back(self.conversation, by_ms)

    def _stop(self, stop: Stop) -> Appended:
        """One that was opened and ended by the same draft is only ended."""
        ended = {closed.id for closed in stop.ended}
        self.opened = tuple(turn for turn in (*self.opened, stop.turn) if turn.id not in ended)
        self.closed = (*self.closed, *stop.ended)
        self.conversation = stop.conversation
        return appended_stop(stop)

    def _is_done(self, change: Change | None) -> bool:
        """Keeps the change; False if there is none, or if it took the turn away from its claim."""
        if change is None:
            return False
        self._put(change)
        return change.closed is None or not change.closed.is_withdrawn

    def _put(self, change: Change) -> Conversation:
        self.conversation = change.conversation
        if change.closed is not None:
            self.closed = (*self.closed, change.closed)
        return self.conversation

    def _keep(self, conversation: Conversation | None) -> bool:
        if conversation is None:
            return False
        self.conversation = conversation
        return True
