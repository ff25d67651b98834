"""Drafts as the swap script reads them."""

import struct
from collections.abc import Sequence

import msgspec

from turntake.buffer.codec import encode
from turntake.buffer.redis.keys import Shard, member
from turntake.buffer.shared.draft import Draft

IDLE = "+inf"
RECEIVED_AT = struct.Struct(">q")
OWN_KEYS = 5

_pack = msgspec.msgpack.Encoder().encode
Turn = tuple[str, int, str, str, int, int, bool, int]


class Call:
    """The keys and arguments that some drafts of one shard add to the script's call."""

    def __init__(self, shard: Shard, drafts: Sequence[Draft]) -> None:
        self._shard = shard
        self.keys: list[str] = []
        self.args: list[bytes] = []
        for draft in drafts:
            self._add(draft)

    def _add(self, draft: Draft) -> None:
        """The script cannot read bytes inside a value, so they travel beside it and the value has their lengths."""
        key, conversation = str(draft.key), draft.conversation
        row = self._key(self._shard.conversation(key))
        payloads = [RECEIVED_AT.pack(added.received_at) + added.payload for added in draft.added]
        data = [draft.body, *payloads]
        index, turns = self._turns(draft, data)
        due = IDLE if conversation.due_at is None else str(conversation.due_at)
        added = [(one.seq, one.id, len(payload)) for one, payload in zip(draft.added, payloads, strict=True)]
        value = (
            key,
            draft.row.version,
            draft.is_changed,
            row,
            index,
            due,
            len(draft.body),
            draft.open_from,
            conversation.next_seq,
            added,
            draft.moved,
            turns,
        )
        self.args += (_pack(value), b"".join(data))

    def _turns(self, draft: Draft, data: list[bytes]) -> tuple[int, list[Turn]]:
        if not (draft.closed or draft.opened or draft.ended):
            return 0, []
        turns: list[Turn] = []
        for closed in draft.closed:
            body = encode(closed)
            data.append(body)
            place, is_letter = self._turn(closed.id), closed.is_letter
            turns.append(("closed", place, closed.id, member(closed), closed.head, closed.at, is_letter, len(body)))
        turns += [("opened", self._turn(one.id), one.id, member(one), one.head, 0, False, 0) for one in draft.opened]
        turns += [("ended", self._turn(one.id), one.id, "", 0, one.at, False, 0) for one in draft.ended]
        return self._key(self._shard.turns(draft.key)), turns

    def _turn(self, turn_id: str) -> int:
        return self._key(self._shard.turn(turn_id))

    def _key(self, name: str) -> int:
        self.keys.append(name)
        return OWN_KEYS + len(self.keys)
