"""One call of swap.lua: some drafts of a shard as its keys and arguments, and its answer as refusals.

How this works: the script gets all drafts of a batch in one call, and decides about each on its own. It takes a draft
if the conversation's row still has the version that the draft was decided on, and holds none of the ids it adds; then
it writes all of the draft. Otherwise it writes nothing of it, and answers with the row as it is now. The head of
swap.lua lists the keys and arguments in their order; this module and that file change together. Releases that run side
by side each send their own script, so what they share is not this call but the names and fields in keys.py.

The call has a number. The script remembers the latest call of each process and which drafts of it were taken, so a call
that is repeated because its answer was lost writes nothing twice, and gets the answer that was lost. The memory is a
field of a hash that is there anyway: while a slot of a cluster moves, no call may name a key that does not exist yet.

A server that is full takes no messages. Claims and answers it must take, since only they can make room again; so what
adds no message is written by a script that is allowed to.
"""

import itertools
import logging
import secrets
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import msgspec
from redis.exceptions import OutOfMemoryError

from turntake.buffer.codec import encode
from turntake.buffer.engine.backend import Refusal, refused
from turntake.buffer.engine.draft import Added, Draft
from turntake.buffer.redis.keys import IDLE_WRITTEN, Shard, member
from turntake.buffer.redis.scripts import SWAP, SWAP_WHEN_FULL, grouped
from turntake.buffer.redis.url import Client, RedisOptions, unavailable_on_error
from turntake.buffer.store import Hint
from turntake.clock import Clock
from turntake.errors import StoreUnavailable

log = logging.getLogger("turntake")

BEHIND_MS = 1_000  # a draft travels for milliseconds; after a second its process was stopped, and its time is too old
LONGEST_BEHIND_MS = 60_000  # a server may be that slow; beyond it, being refused again and again would not help it

ANY_TIME = -1  # for tests, whose clock is not the server's, and for a call that only asks
RECEIVED_AT = struct.Struct(">q")
"""The time a message came stands before its payload, in eight bytes that a script can move without reading them."""

Argument = str | bytes | int

encode_hint = msgspec.json.Encoder().encode


class SwapReply(NamedTuple):
    """`seen_at` is the latest time that any process noted; `messages` is how many were ever added to the shard."""

    server_at: int
    seen_at: int
    is_late: bool
    messages: int
    refusals: list[Refusal | None]


class CallId(NamedTuple):
    """A call by its process, the field of the shard's counts in which it is remembered, and its number."""

    process: str
    field: str
    number: int


class SwapCall:
    """Keys and arguments for some drafts of one shard.

    The script refuses all of them, unread, if they were decided more than `behind_ms` ago. If it takes any of them, it
    publishes the hint.
    """

    def __init__(
        self, id: CallId, shard: Shard, drafts: Sequence[Draft], channel: str, hint: Hint | None, behind_ms: int
    ) -> None:
        self._shard = shard
        self._drafts = drafts
        self.has_messages, has_turns = False, False
        for draft in drafts:
            self.has_messages = self.has_messages or bool(draft.added)
            has_turns = has_turns or bool(draft.closed or draft.opened or draft.ended)
        self.keys: list[str] = [shard.due, shard.counts]
        if has_turns:
            self.keys += (shard.closed, shard.letters)
        decided_at = drafts[0].now if drafts else 0
        first_row = len(self.keys) + 1
        self.args: list[Argument] = [decided_at, behind_ms, *id, channel, encode_hint(hint) if hint else b"", first_row]
        for draft in drafts:
            self._add(draft)

    def read(self, answer: Sequence[Any]) -> SwapReply:
        """What the script's answer says, one refusal or None for each draft in order."""
        server_at, seen_at, messages = answer[:3]
        if messages < 0:
            unread: list[Refusal | None] = [Refusal(draft.row, is_read=False) for draft in self._drafts]
            return SwapReply(server_at, seen_at, True, 0, unread)
        refusals: list[Refusal | None] = [None] * len(self._drafts)
        for number, version, body, known, kept_ms in grouped(answer, 3, 5):
            refusals[number - 1] = refused(version, body, (id.decode() for id in known), kept_ms)
        return SwapReply(server_at, seen_at, False, messages, refusals)

    def _add(self, draft: Draft) -> None:
        key, conversation = str(draft.key), draft.conversation
        due, state = "", ""  # an unchanged draft is only compared
        if draft.body:
            due_at = conversation.due_at
            due = IDLE_WRITTEN if due_at is None else str(due_at)
            state = f"{draft.version} {draft.open_from} {conversation.next_seq}"
        self.keys.append(self._shard.conversation(key))
        turns = len(draft.closed) + len(draft.opened) + len(draft.ended)
        added, moved = len(draft.added), len(draft.moved)
        self.args += (key, draft.row.version, due, state, draft.body, draft.keep_ms, added, moved, turns)
        if draft.added:
            self.args += _messages(list(draft.added.values()))
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


class Swapper:
    """Writes drafts, keeps our clock with the server's, and notices messages that a failover took away."""

    def __init__(self, client: Client, commands: Client, options: RedisOptions, channel: str, clock: Clock) -> None:
        self.lost = 0
        self._client = client
        self._commands = commands
        self._options = options
        self._channel = channel
        self._clock = clock
        self._behind_ms = BEHIND_MS
        self._counts: dict[int, tuple[int, int]] = {}
        self._process = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._free_fields: dict[int, list[int]] = defaultdict(list)
        self._fields: dict[int, int] = defaultdict(int)

    async def swap(
        self, shard: Shard, drafts: Sequence[Draft], hint: Hint | None = None, replicas: int = 0
    ) -> list[Refusal | None]:
        """Takes or refuses each draft. One with messages is refused with an error if too few replicas have it in time.

        All other drafts wait for no replica: only what a message's sender is told must outlive a failover. A claim, an
        answer or its end that is lost in one is made again; reported as failed, though written, it would be made
        again each time, and the turn given up in the end.
        """
        behind_ms = self._behind_ms if drafts and self._clock.is_followed else ANY_TIME
        field = self._take_field(shard)
        with unavailable_on_error:
            try:
                id = CallId(self._process, f"d{self._process}.{field}", next(self._numbers))
                call = SwapCall(id, shard, drafts, self._channel, hint, behind_ms)
                answer, is_safe = await self._write(call, replicas if call.has_messages else 0)
            except OutOfMemoryError as error:
                if not call.has_messages:
                    raise
                full = StoreUnavailable(f"The server has no memory left for messages ({error}).")
                return await self._swap_others(shard, drafts, hint, full)
            finally:
                heappush(self._free_fields[shard.number], field)
        reply = call.read(answer)
        self._clock.follow(reply.server_at, reply.seen_at)
        # A server that takes longer than that for each call would refuse every draft: it is given more time.
        self._behind_ms = min(2 * self._behind_ms, LONGEST_BEHIND_MS) if reply.is_late else BEHIND_MS
        if drafts and not reply.is_late:
            self._count(shard, reply, drafts)
        return reply.refusals if is_safe else list(map(_unless_acknowledged, drafts, reply.refusals))

    async def _swap_others(
        self, shard: Shard, drafts: Sequence[Draft], hint: Hint | None, error: StoreUnavailable
    ) -> list[Refusal | None]:
        """Writes the drafts without messages; the others are refused with the error."""
        others = [draft for draft in drafts if not draft.added]
        answers = iter(await self.swap(shard, others, hint) if others else ())
        return [Refusal(draft.row, error=error) if draft.added else next(answers) for draft in drafts]

    def _take_field(self, shard: Shard) -> int:
        """A field of its own for each call that is under way in a shard, and as few fields as there ever were calls at
        once: those of processes that ended are only removed when another starts."""
        free = self._free_fields[shard.number]
        if free:
            return heappop(free)
        self._fields[shard.number] += 1
        return self._fields[shard.number] - 1

    async def _write(self, call: SwapCall, replicas: int) -> tuple[Any, bool]:
        """The script's answer, and whether so many replicas have what it wrote."""
        if not replicas:
            script = SWAP if call.has_messages else SWAP_WHEN_FULL
            return await script(self._commands, call.keys, call.args), True
        return await SWAP.replicated(self._client, call.keys, call.args, replicas, self._options.wait_ms)

    def _count(self, shard: Shard, reply: SwapReply, drafts: Sequence[Draft]) -> None:
        """The number of messages ever added only grows: one that is smaller than the last we saw tells of a loss."""
        counted_at, count = self._counts.get(shard.number, (0, 0))
        # Replies may overtake each other. A server whose clock is behind goes on from the time that was noted.
        at = max(reply.server_at, reply.seen_at)
        if at <= counted_at:
            return
        self._counts[shard.number] = at, reply.messages
        added = 0
        for draft, refusal in zip(drafts, reply.refusals, strict=True):
            if refusal is None:
                added += len(draft.added)
        lost = count - (reply.messages - added)
        if lost > 0:
            self.lost += lost
            log.error(
                "The store lost messages that were acknowledged, as after a failover without WAIT",
                extra={"action": "write", "shard": shard.number, "lost": lost},
            )


def _unless_acknowledged(draft: Draft, refusal: Refusal | None) -> Refusal | None:
    """An error in place of what would acknowledge messages: they were taken, or are known from an earlier try."""
    if draft.added and (refusal is None or refusal.known):
        error = StoreUnavailable("Too few replicas had the write in time; it is not acknowledged, so send it again.")
        return Refusal(draft.row, error=error)
    return refusal


def _messages(added: Sequence[Added]) -> tuple[Argument, ...]:
    """However many messages there are, they take at most three arguments: some services limit a call's arguments."""
    if len(added) == 1:
        (message,) = added
        return message.seq, message.id, RECEIVED_AT.pack(message.received_at) + message.payload
    payloads = [RECEIVED_AT.pack(message.received_at) + message.payload for message in added]
    heads = [(message.seq, message.id, len(payload)) for message, payload in zip(added, payloads, strict=True)]
    return encode(heads), b"".join(payloads)
