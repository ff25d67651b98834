"""Drafts as the swap script reads them."""

import struct
from collections.abc import Iterator, Sequence

from turntake.buffer.codec import encode
from turntake.buffer.engine.draft import Added, Draft
from turntake.buffer.redis.keys import Shard, member

IDLE = "+inf"
RECEIVED_AT = struct.Struct(">q")

Argument = str | bytes | int


class Call:
    """The keys and arguments that some drafts of one shard add to the script's call."""

    def __init__(self, shard: Shard, drafts: Sequence[Draft]) -> None:
        self._shard = shard
        self.keys: list[str] = []
        self.args: list[Argument] = []
        for draft in drafts:
            self._add(draft)

    def _add(self, draft: Draft) -> None:
        key, conversation = str(draft.key), draft.conversation
        due, state = "", ""
        if draft.is_changed:
            due = IDLE if conversation.due_at is None else str(conversation.due_at)
            state = f"{draft.version} {draft.open_from} {conversation.next_seq}"
        self.keys.append(self._shard.conversation(key))
        turns = len(draft.closed) + len(draft.opened) + len(draft.ended)
        self.args += (key, draft.row.version, due, state, draft.body, len(draft.added), len(draft.moved), turns)
        if draft.added:
            self.args += _messages(draft.added)
        if draft.moved:
            self.args.append(encode(draft.moved))
        if turns:
            self.keys.append(self._shard.turns(key))
            for turn in self._turns(draft):
                self.args += turn

    def _turns(self, draft: Draft) -> Iterator[tuple[Argument, ...]]:
        for closed in draft.closed:
            self.keys.append(self._shard.turn(closed.id))
            yield "closed", closed.id, member(closed), closed.head, closed.at, int(closed.is_letter), encode(closed)
        for opened in draft.opened:
            self.keys.append(self._shard.turn(opened.id))
            yield "opened", opened.id, member(opened), opened.head, 0, 0, b""
        for ended in draft.ended:
            self.keys.append(self._shard.turn(ended.id))
            yield "ended", ended.id, "", 0, ended.at, 0, b""


def _messages(added: Sequence[Added]) -> tuple[Argument, ...]:
    """However many there are, they take few arguments, of which some services allow only so many."""
    payloads = [RECEIVED_AT.pack(one.received_at) + one.payload for one in added]
    if len(added) == 1:
        return added[0].seq, added[0].id, payloads[0]
    heads = [(one.seq, one.id, len(payload)) for one, payload in zip(added, payloads, strict=True)]
    return encode(heads), b"".join(payloads)
