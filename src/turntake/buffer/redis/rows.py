"""Reads rows: conversations, their messages, and turns."""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from turntake.buffer.codec import decode_closed, read_message
from turntake.buffer.engine.archive import TurnRow
from turntake.buffer.engine.backend import PAGE, Messages
from turntake.buffer.engine.draft import Row, row_of
from turntake.buffer.engine.offer_size import OFFER_BYTES
from turntake.buffer.redis.keys import Shard
from turntake.buffer.redis.scripts import LOAD, grouped
from turntake.buffer.redis.shards import Shards
from turntake.buffer.redis.swap import RECEIVED_AT
from turntake.buffer.redis.url import Client, unavailable_on_error
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")

READ_UNSEEN = 8  # so few messages are read without asking for their sizes first, which would be one more round trip


class Rows:
    """Reads through redis-py, whose pipelines work on a cluster too; the rows for a batch of writes by a script."""

    def __init__(self, client: Client, commands: Client, shards: Shards) -> None:
        self.client = client
        self.shards = shards
        self._commands = commands

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        numbers = [self.shards.number_of(key) for key in keys]
        names = [self.shards[number].conversation(key) for number, key in zip(numbers, keys, strict=True)]
        if numbers and numbers.count(numbers[0]) == len(numbers):
            with unavailable_on_error:
                answer = await LOAD(self._commands, names, ())
            return [row_of(version_of(state), body) for state, body in grouped(answer, 0, 2)]
        return [row_of(version_of(state), body or b"") for state, body in await self._fields(names, "s", "b")]

    async def readable(self, shard: Shard, keys: Sequence[str]) -> list[tuple[ConversationKey, Row]]:
        """Those of these rows that can be read; the others are named in the log."""
        rows = []
        fields = await self._fields([shard.conversation(key) for key in keys], "s", "b")
        for key, (state, body) in zip(keys, fields, strict=True):
            try:
                rows.append((ConversationKey.parse(key), row_of(version_of(state), body or b"")))
            except (ValueError, msgspec.MsgspecError):
                log.error("A conversation cannot be read", extra={"action": "rebuild", "conversation": key})
        return rows

    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        name = self.shards.of(key.shard_hash).conversation(key)
        messages: Messages = {}
        with unavailable_on_error:
            for first in range(head, tail + 1, PAGE):
                for seqs in await self._pages(name, range(first, min(first + PAGE, tail + 1))):
                    payloads = await self.client.hmget(name, [f"m{seq}" for seq in seqs])
                    messages.update(messages_of(seqs.start, payloads))
        return messages

    async def _pages(self, name: str, seqs: range) -> list[range]:
        """The messages in parts that each arrive within the time limit on a slow line: their sizes are read first."""
        if len(seqs) <= READ_UNSEEN:
            return [seqs]
        async with self.client.pipeline(transaction=False) as pipeline:
            for seq in seqs:
                pipeline.hstrlen(name, f"m{seq}")
            sizes: list[int] = await pipeline.execute()
        pages, start, filled = [], seqs.start, 0
        for seq, size in zip(seqs, sizes, strict=True):
            if filled + size > OFFER_BYTES and seq > start:
                pages.append(range(start, seq))
                start, filled = seq, 0
            filled += size
        return [*pages, range(start, seqs.stop)]

    async def turns(self, shard: Shard, turn_ids: Sequence[str]) -> list[TurnRow | None]:
        """One for each id; None for a turn that is not there or cannot be read."""
        rows = await self._fields([shard.turn(turn_id) for turn_id in turn_ids], "k", "c", "l")
        return [_turn(id, *fields) for id, fields in zip(turn_ids, rows, strict=True)]

    async def _fields(self, names: Sequence[str], *fields: str) -> list[Any]:
        """The same fields of many hashes, in one round trip for each server."""
        if not names:
            return []
        with unavailable_on_error:
            if len(names) == 1:
                return [await self.client.hmget(names[0], fields)]
            async with self.client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.hmget(name, fields)
                answers: list[Any] = await pipeline.execute()
                return answers


def version_of(state: bytes | None) -> int:
    """The first of the three numbers in a row's field `s`; 0 if there is no row."""
    return int(state.split()[0]) if state else 0


def messages_of(first: int, payloads: Sequence[bytes | None]) -> Messages:
    """The messages from number `first` on by their numbers; a number without a payload was forgotten."""
    return {
        seq: read_message(payload[8:], seq, RECEIVED_AT.unpack(payload[:8])[0])
        for seq, payload in enumerate(payloads, first)
        if payload is not None
    }


def _turn(turn_id: str, key: bytes | None, body: bytes | None, letter: bytes | None) -> TurnRow | None:
    if key is None:
        return None
    try:
        closed = None if body is None else decode_closed(body)
        return TurnRow(ConversationKey.parse(key.decode()), turn_id, closed, letter is not None)
    except (ValueError, msgspec.MsgspecError):
        log.error("A turn cannot be read", extra={"action": "read", "turn": turn_id})
        return None
