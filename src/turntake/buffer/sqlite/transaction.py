"""One transaction's view of the database: each conversation is read once, decided on by the rules, written once."""

import logging
from collections.abc import Sequence

import apsw
import msgspec
from msgspec.structs import replace

from turntake.buffer.codec import decode_closed, decode_conversation, decode_message, encode
from turntake.buffer.sqlite.queries import SQL, one, rows, run
from turntake.rules import transitions
from turntake.rules.conversation import Change, Conversation, Progress, Settlement, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message, as_said, in_order
from turntake.rules.records import Append, Appended, Claim, appended
from turntake.rules.rules import Rules

CLOCK_NOTED_MS = 1_000
UNREADABLE_MS = 60_000

log = logging.getLogger("turntake")


class Loaded:
    """A conversation in hand: its row, where it stands, and whether it must be written back."""

    __slots__ = ("conversation", "is_changed", "key", "row")

    def __init__(self, row: int, key: ConversationKey, conversation: Conversation) -> None:
        self.row = row
        self.key = key
        self.conversation = conversation
        self.is_changed = False


class Transaction:
    """The verbs of the store inside an open transaction, at one moment `now`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._loaded: dict[ConversationKey, Loaded] = {}
        self._last_row: int | None = None
        self._noted_at = 0
        self.now = 0

    def begin(self, now: int) -> None:
        self.now = now
        self._loaded.clear()
        self._last_row = None
        if now >= self._noted_at + CLOCK_NOTED_MS:
            self._noted_at = now
            run(self._connection, "note_clock", now)

    def write_back(self) -> None:
        changed = []
        for loaded in self._loaded.values():
            if loaded.is_changed:
                conversation = loaded.conversation
                changed.append(
                    (loaded.row, str(loaded.key), conversation.state, conversation.due_at, encode(conversation))
                )
                loaded.is_changed = False
        if changed:
            self._connection.executemany(SQL["store"], changed)

    def append(self, arrivals: Sequence[Append]) -> list[Appended]:
        return [self._append(arrival) for arrival in arrivals]

    def touch(self, key: ConversationKey, order: Touch, rules: Rules) -> Conversation | None:
        loaded = self._load(key)
        if loaded is None:
            return None
        return self._put(loaded, transitions.touch(loaded.conversation, key, order, rules, self.now))

    def claim(self, limit: int, lease_ms: int) -> list[Claim]:
        self.write_back()
        due = rows(self._connection, "due", self.now, limit)
        return [self._claim(loaded, lease_ms) for row in due if (loaded := self._readable(*row))]

    def extend(self, claims: Sequence[Claim], lease_ms: int) -> list[bool]:
        return [self._extend(claim, lease_ms) for claim in claims]

    def save(self, claim: Claim, progress: Progress) -> bool:
        loaded = self._load(claim.key)
        return loaded is not None and self._keep(loaded, transitions.save(loaded.conversation, claim, progress))

    def settle(self, claim: Claim, settlement: Settlement) -> bool:
        loaded = self._load(claim.key)
        if loaded is None:
            return False
        change = transitions.settle(loaded.conversation, claim, settlement, self.now)
        if change is None:
            row = one(self._connection, "turn", claim.turn.id)
            return bool(row and row[1]) and transitions.is_same(decode_closed(row[1]), claim, settlement)
        self._put(loaded, change)
        return True

    def forget(self, before: int, limit: int) -> int:
        old = rows(self._connection, "closed_before", before, limit)
        for row, body in old:
            closed = decode_closed(body)
            if closed.status != "interrupted":
                run(self._connection, "drop_messages", row, closed.head, closed.tail)
            run(self._connection, "drop_turn", row, closed.head, closed.tail)
        return len(old)

    def retry_letter(self, letter_id: str) -> Conversation | None:
        self.write_back()
        ended = one(self._connection, "end_letter", letter_id)
        if ended is None:
            return None
        row, body = ended
        loaded, closed = self._load_row(row), decode_closed(body)
        moved = messages_in(self._connection, row, closed.head, closed.tail)
        for new_seq, message in enumerate(moved, loaded.conversation.next_seq):
            run(self._connection, "move_message", new_seq, row, message.seq)
        amendments = sum(message.is_amendment for message in moved)
        self._keep(loaded, transitions.requeue(loaded.conversation, len(moved), amendments, self.now))
        return loaded.conversation

    def discard_letter(self, letter_id: str) -> bool:
        return one(self._connection, "end_letter", letter_id) is not None

    def _append(self, arrival: Append) -> Appended:
        key, message = arrival.key, arrival.message
        loaded = self._load(key)
        before = loaded.conversation if loaded else Conversation()
        at = transitions.arrival_at(before, self.now)
        change = transitions.arrive(before, arrival, at)
        if change is None:
            return appended(before, "ignored")
        loaded = loaded or self._new(key)
        row = (loaded.row, before.next_seq, message.id, at, encode(message))
        if one(self._connection, "add_message", *row) is None:
            return appended(before, "duplicate")
        return appended(self._put(loaded, change), "buffered", change.closed)

    def _claim(self, loaded: Loaded, lease_ms: int) -> Claim:
        is_new = loaded.conversation.turn is None
        conversation = transitions.claim(loaded.conversation, loaded.key, lease_ms, self.now)
        self._keep(loaded, conversation)
        turn = conversation.turn
        assert turn is not None
        if is_new:
            run(self._connection, "open_turn", loaded.row, turn.head, turn.tail, turn.id)
        messages = in_order(as_said(messages_in(self._connection, loaded.row, turn.head, turn.tail)))
        return Claim(loaded.key, conversation.epoch, turn, messages)

    def _extend(self, claim: Claim, lease_ms: int) -> bool:
        loaded = self._load(claim.key)
        if loaded is None:
            return False
        return self._keep(loaded, transitions.extend(loaded.conversation, claim, lease_ms, self.now))

    def _load(self, key: ConversationKey) -> Loaded | None:
        loaded = self._loaded.get(key)
        if loaded is None:
            row = one(self._connection, "load", str(key))
            if row is None:
                return None
            loaded = self._loaded[key] = Loaded(row[0], key, decode_conversation(row[1]))
        return loaded

    def _load_row(self, row: int) -> Loaded:
        found = one(self._connection, "load_by_id", row)
        assert found is not None, "a turn's conversation is never deleted before it"
        return self._adopt(row, *found)

    def _adopt(self, row: int, key: str, body: bytes) -> Loaded:
        parsed = ConversationKey.parse(key)
        loaded = self._loaded.get(parsed)
        if loaded is None:
            loaded = self._loaded[parsed] = Loaded(row, parsed, decode_conversation(body))
        return loaded

    def _readable(self, row: int, key: str, body: bytes) -> Loaded | None:
        """One row that nobody can read must not keep everybody else from being answered: it is put off."""
        try:
            return self._adopt(row, key, body)
        except (ValueError, msgspec.MsgspecError):
            log.error("A conversation cannot be read", extra={"action": "claim", "row": row})
            run(self._connection, "put_off", self.now + UNREADABLE_MS, row)
            return None

    def _new(self, key: ConversationKey) -> Loaded:
        last_row = one(self._connection, "last_id")[0] if self._last_row is None else self._last_row
        self._last_row = last_row + 1
        loaded = self._loaded[key] = Loaded(self._last_row, key, Conversation())
        return loaded

    def _put(self, loaded: Loaded, change: Change) -> Conversation:
        closed = change.closed
        if closed is not None:
            letter_at = closed.at if closed.is_letter else None
            row = (loaded.row, closed.head, closed.tail, closed.id, closed.at, letter_at, encode(closed))
            run(self._connection, "close_turn", *row)
        self._keep(loaded, change.conversation)
        return change.conversation

    def _keep(self, loaded: Loaded, conversation: Conversation | None) -> bool:
        if conversation is None:
            return False
        loaded.conversation = conversation
        loaded.is_changed = True
        return True


def messages_in(connection: apsw.Connection, row: int, head: int, tail: int) -> tuple[Message, ...]:
    """The stored messages of a range, by number."""
    return tuple(
        replace(decode_message(payload), seq=seq, received_at=received_at)
        for seq, received_at, payload in rows(connection, "messages", row, head, tail)
    )
