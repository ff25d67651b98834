"""Reading rows: conversations, their messages, and turns."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from turntake.buffer.codec import decode_closed, decode_conversation, decode_message
from turntake.buffer.engine.backend import PAGE, Messages, TurnRow
from turntake.buffer.engine.draft import Row
from turntake.buffer.redis.keys import Shard
from turntake.buffer.redis.swap import RECEIVED_AT
from turntake.buffer.redis.url import UNREACHABLE, Client
from turntake.errors import StoreUnavailable
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")


class Rows:
    """What every shard holds, by its names."""

    def __init__(self, client: Client, prefix: str, count: int) -> None:
        self.client = client
        self.shards = [Shard(prefix, number) for number in range(count)]

    def shard(self, place: int) -> Shard:
        return self.shards[place % len(self.shards)]

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        names = [self.shard(key.place).conversation(key) for key in keys]
        return [row_of(version_of(state), body or b"") for state, body in await self._many(names, "s", "b")]

    async def readable(self, shard: Shard, keys: Sequence[str]) -> list[tuple[ConversationKey, Row]]:
        """Those of these rows that can be read; the others are named in the log."""
        found = []
        rows = await self._many([shard.conversation(key) for key in keys], "s", "b")
        for key, (state, body) in zip(keys, rows, strict=True):
            try:
                found.append((ConversationKey.parse(key), row_of(version_of(state), body or b"")))
            except (ValueError, msgspec.MsgspecError):
                log.error("A conversation cannot be read", extra={"action": "rebuild", "conversation": key})
        return found

    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        name = self.shard(key.place).conversation(key)
        found: Messages = {}
        with unavailable_on_error():
            for first in range(head, tail + 1, PAGE):
                seqs = range(first, min(first + PAGE, tail + 1))
                payloads = await self.client.hmget(name, [f"m{seq}" for seq in seqs])
                found.update(messages_of(first, payloads))
        return found

    async def turns(self, shard: Shard, turn_ids: Sequence[str]) -> list[TurnRow | None]:
        found = await self._many([shard.turn(turn_id) for turn_id in turn_ids], "k", "c", "l")
        return [_turn(id, *fields) for id, fields in zip(turn_ids, found, strict=True)]

    async def _many(self, names: Sequence[str], *fields: str) -> list[Any]:
        """Some fields of many rows."""
        if not names:
            return []
        with unavailable_on_error():
            if len(names) == 1:
                return [await self.client.hmget(names[0], fields)]
            async with self.client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.hmget(name, fields)
                found: list[Any] = await pipeline.execute()
                return found


@contextmanager
def unavailable_on_error() -> Iterator[None]:
    try:
        yield
    except UNREACHABLE as error:
        raise StoreUnavailable(f"Redis did not do as asked ({type(error).__name__}: {error}).") from error


def version_of(state: bytes | None) -> int:
    return int(state.split()[0]) if state else 0


def row_of(version: int, body: bytes) -> Row:
    return Row(version, decode_conversation(body)) if version else Row()


def messages_of(first: int, payloads: Sequence[bytes | None]) -> Messages:
    return {
        seq: replace(decode_message(payload[8:]), seq=seq, received_at=RECEIVED_AT.unpack(payload[:8])[0])
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
