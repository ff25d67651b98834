"""One call of swap.lua: some drafts of a shard as its keys and arguments, and its answer as refusals.

How this works: the script gets all drafts of a batch in one call, and decides about each on its own. It takes a draft
if the conversation's row still has the version that the draft was decided on, and holds none of the ids it adds; then
it writes all of the draft. Otherwise it writes nothing of it, and answers with the row as it is now. The head of
swap.lua lists the keys and arguments in their order; this module and that file change together. Releases that run side
by side each send their own script, so what they share is not this call but the names and fields in keys.py.

The call has an id. The script remembers under it for two minutes which drafts it took, so a call that is repeated
because its answer was lost writes nothing twice, and gets the answer that was lost.
"""

import secrets
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from turntake.buffer.codec import encode
from turntake.buffer.engine.backend import Refusal, refused
from turntake.buffer.engine.draft import Added, Draft
from turntake.buffer.redis.keys import Shard, member
from turntake.buffer.redis.scripts import grouped
from turntake.buffer.store import Hint

IDLE = "+inf"
"""The score of a conversation without a deadline: idle ones stay in the index, behind all others."""

ANY_TIME = -1
RECEIVED_AT = struct.Struct(">q")
"""The time a message came stands before its payload, in eight bytes that a script can move without reading them."""

Argument = str | bytes | int

encode_hint = msgspec.json.Encoder().encode


class SwapReply(NamedTuple):
    """`messages` is how many were ever added to the shard, these included."""

    server_at: int
    is_late: bool
    messages: int
    refusals: list[Refusal | None]


class SwapCall:
    """Keys and arguments for some drafts of one shard.

    The script refuses all of them, unread, if they were decided more than `behind_ms` ago. If it takes any of them, it
    publishes the hint.
    """

    def __init__(self, shard: Shard, drafts: Sequence[Draft], channel: str, hint: Hint | None, behind_ms: int) -> None:
        self._shard = shard
        self._drafts = drafts
        done = shard.done(secrets.token_hex(8))
        self.keys: list[str] = [shard.due, shard.closed, shard.letters, shard.counts, done]
        self.args: list[Argument] = [drafts[0].now, behind_ms, channel, encode_hint(hint) if hint else b""]
        for draft in drafts:
            self._add(draft)

    def read(self, answer: Sequence[Any]) -> SwapReply:
        """What the script's answer says, one refusal or None for each draft in order."""
        server_at, messages = answer[:2]
        if messages < 0:
            return SwapReply(server_at, True, 0, [Refusal(draft.row, is_read=False) for draft in self._drafts])
        refusals: list[Refusal | None] = [None] * len(self._drafts)
        for number, version, body, known in grouped(answer, 2, 4):
            refusals[number - 1] = refused(version, body, (id.decode() for id in known))
        return SwapReply(server_at, False, messages, refusals)

    def _add(self, draft: Draft) -> None:
        key, conversation = str(draft.key), draft.conversation
        due, state = "", ""  # an unchanged draft is only compared
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
    """However many messages there are, they take at most three arguments: some services limit a call's arguments."""
    payloads = [RECEIVED_AT.pack(message.received_at) + message.payload for message in added]
    if len(added) == 1:
        return added[0].seq, added[0].id, payloads[0]
    heads = [(message.seq, message.id, len(payload)) for message, payload in zip(added, payloads, strict=True)]
    return encode(heads), b"".join(payloads)
