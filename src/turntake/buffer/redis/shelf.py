"""The shelf on Redis or Valkey: rows are hashes, a shard has one index of deadlines, and scripts compare and swap."""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace
from redis.asyncio import RedisCluster
from redis.exceptions import RedisError

from turntake.buffer.codec import decode_closed, decode_conversation, decode_message, encode
from turntake.buffer.cursor import Place
from turntake.buffer.redis.client import CLUSTER_SHARDS, Client, Options, connect, options_of
from turntake.buffer.redis.connections import mended
from turntake.buffer.redis.drafts import IDLE, RECEIVED_AT, Call
from turntake.buffer.redis.examine import refuse_unsafe
from turntake.buffer.redis.index import page
from turntake.buffer.redis.keys import MEMBER_DIGITS, ROW, Shard, member, place_of
from turntake.buffer.redis.scripts import FORGET, MEND, MEND_TURNS, SWAP, TAKE
from turntake.buffer.shared.draft import Draft, Row
from turntake.buffer.shared.shelf import PAGE, Due, Messages, Refusal, Shelf, TurnRow, refused
from turntake.buffer.store import Hint
from turntake.clock import Clock
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.rules.conversation import Closed
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")

FORMAT = 1
BEHIND_MS = 1_000
RESERVED_MS = 500
UNREADABLE_MS = 60_000
MESSAGES_OFFERED = 100
CLAIM_ROUNDS = 10
CLAIMED_AT_ONCE = 150
RECONNECT_MS = 1_000
NEVER = float("inf")

_decode_hint = msgspec.json.Decoder(Hint).decode
_encode_hint = msgspec.json.Encoder().encode


class RedisShelf(Shelf):
    """One lane a shard. `lost` counts acknowledged messages that a failover is known to have taken away."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._options: Options = options_of(url)
        self._channel = f"{self._options.prefix}:hints"
        self._seen: dict[int, tuple[int, int]] = {}
        self.lost = 0

    async def open(self) -> None:
        self._client: Client = mended(connect(self._url))
        try:
            with unavailable_on_error():
                await refuse_unsafe(self._client)
                count = await self._agree_on_shards()
                self._shards = [Shard(self._options.prefix, number) for number in range(count)]
                await self._set_clock()
        except BaseException:
            await self._client.aclose()
            raise
        self.lanes = count

    async def close(self) -> None:
        await self._client.aclose()

    def lane(self, key: ConversationKey) -> int:
        return key.place % self.lanes

    async def swap(self, lane: int, drafts: Sequence[Draft], hint: Hint | None) -> list[Refusal | None]:
        shard, call = self._shards[lane], Call(self._shards[lane], drafts)
        request, decided_at = secrets.token_hex(8), drafts[0].now
        keys = (shard.due, shard.closed, shard.letters, shard.counts, shard.done(request), *call.keys)
        behind = BEHIND_MS if self._clock.is_followed else -1
        args = (decided_at, behind, self._channel, _encode_hint(hint) if hint else b"", *call.args)
        with unavailable_on_error():
            answer = await self._write(keys, args)
        self._clock.follow(answer[0])
        if answer[1] < 0:
            return [Refusal(draft.row, is_read=False) for draft in drafts]
        self._count(lane, answer[0], answer[1])
        refusals: list[Refusal | None] = [None] * len(drafts)
        for number, version, body, known in _grouped(answer, 2, 4):
            refusals[number - 1] = refused(version, body, (id.decode() for id in known))
        return refusals

    async def claim(self, limit: int, now: int, decide: Callable[[Due], Draft | None]) -> list[tuple[Due, Draft]]:
        """Asks again while others were quicker: what they took is out of the way by then."""
        claims: list[tuple[Due, Draft]] = []
        for _ in range(CLAIM_ROUNDS):
            earliest = await self._due_before(now, limit - len(claims))
            claims += await self._claim_some(earliest, now, decide)
            if len(claims) >= limit or not earliest:
                break
        return claims

    async def load(self, keys: Sequence[ConversationKey]) -> list[Row]:
        names = [self._shard(key).conversation(key) for key in keys]
        return [_row(_version(state), body or b"") for state, body in await self._many(names, "s", "b")]

    async def messages(self, key: ConversationKey, head: int, tail: int) -> Messages:
        name = self._shard(key).conversation(key)
        found: Messages = {}
        with unavailable_on_error():
            for first in range(head, tail + 1, PAGE):
                seqs = range(first, min(first + PAGE, tail + 1))
                payloads = await self._client.hmget(name, [f"m{seq}" for seq in seqs])
                found.update(_messages(first, payloads))
        return found

    async def next_due(self) -> int | None:
        with unavailable_on_error():
            heads = await asyncio.gather(
                *(self._client.zrange(shard.due, 0, 0, withscores=True) for shard in self._shards)
            )
        earliest = min((score for head in heads for _, score in head), default=NEVER)
        return None if earliest == NEVER else int(earliest)

    async def turn(self, turn_id: str) -> TurnRow | None:
        place = place_of(turn_id)
        if place is None:
            return None
        (row,) = await self._turns(self._shards[place % self.lanes], [turn_id])
        return row

    async def turns(self, key: ConversationKey, limit: int) -> list[TurnRow]:
        shard = self._shard(key)
        with unavailable_on_error():
            members = await self._client.zrange(shard.turns(key), 0, min(limit, PAGE) - 1, desc=True)
        rows = await self._turns(shard, [name.decode()[MEMBER_DIGITS:] for name in members])
        return [row for row in rows if row]

    async def letters(self, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        limit = min(limit, PAGE)
        parts = await asyncio.gather(*(self._letters(shard, limit, before) for shard in self._shards))
        rows = sorted((row for part in parts for row in part), key=_letter_order, reverse=True)
        return rows[:limit]

    async def index(self, after: Place | None, limit: int) -> list[tuple[ConversationKey, Row]]:
        place = None if after is None else (NEVER if after[0] is None else float(after[0]), after[1])
        with unavailable_on_error():
            parts = await asyncio.gather(*(page(self._client, shard.due, limit, place) for shard in self._shards))
        keys = [ConversationKey.parse(key) for _, key in sorted(entry for part in parts for entry in part)[:limit]]
        rows = zip(keys, await self.load(keys), strict=True)
        return sorted(rows, key=lambda pair: _place(*pair))

    async def forget(self, before: int, limit: int) -> int:
        dropped = 0
        for shard in self._shards:
            if dropped < limit:
                with unavailable_on_error():
                    dropped += await self._forget(shard, before, limit - dropped)
        return dropped

    async def rebuild(self) -> int:
        """One walk over every name, in which each shard's rows are mended as they come."""
        wrong = 0
        with unavailable_on_error():
            async for number, kind, names in self._scanned():
                shard = self._shards[number]
                if kind == "c":
                    wrong += await self._mend(shard, [ConversationKey.parse(key) for key in names])
                else:
                    wrong += await self._mend_turns(shard, names)
        return wrong

    async def hints(self) -> AsyncIterator[Hint]:
        """One subscription for as long as somebody listens; while it is cut off, the horizon has to do."""
        while True:
            try:
                async with subscribed(self._client, self._channel) as words:
                    async for word in words:
                        yield _decode_hint(word)
            except (RedisError, OSError, msgspec.MsgspecError) as error:
                log.info("Hints stopped; looking every second", extra={"action": "hint", "error": type(error).__name__})
            await self._clock.sleep(RECONNECT_MS)

    async def _agree_on_shards(self) -> int:
        """How many there are is fixed by whoever comes first; a later URL may only repeat it."""
        name, wanted = f"{self._options.prefix}:meta", self._options.shards
        default = CLUSTER_SHARDS if self._options.is_cluster else 1
        await self._client.hsetnx(name, "shards", wanted or default)
        await self._client.hsetnx(name, "format", FORMAT)
        shards, written = map(int, await self._client.hmget(name, ["shards", "format"]))
        if written > FORMAT:
            raise ConfigurationError(f"The store has format {written}, this release knows {FORMAT}: upgrade turntake.")
        if wanted is not None and wanted != shards:
            raise ConfigurationError(
                f"The store was made with {shards} shards, which cannot change; write shards={shards} or leave it out."
            )
        return shards

    async def _set_clock(self) -> None:
        """The server's time rules, and never falls behind what the data has seen."""
        seconds, micros = await self._client.time(**self._anywhere())
        self._clock.follow(seconds * 1000 + micros // 1000)
        seen = await asyncio.gather(*(self._client.hget(shard.counts, "seen") for shard in self._shards))
        self._clock.not_before(max(int(at or 0) for at in seen))

    def _anywhere(self) -> dict[str, Any]:
        return {"target_nodes": RedisCluster.RANDOM} if isinstance(self._client, RedisCluster) else {}

    async def _write(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        if not self._options.wait:
            return await SWAP(self._client, keys, args)
        answer, is_safe = await SWAP.replicated(self._client, keys, args, self._options.wait, self._options.wait_ms)
        if not is_safe:
            raise StoreUnavailable("Too few replicas had the write in time; it is not acknowledged, so send it again.")
        return answer

    def _count(self, lane: int, at: int, messages: int) -> None:
        """Messages only ever grow in number: a server that has fewer than before lost some in a failover."""
        seen_at, seen = self._seen.get(lane, (0, 0))
        if at <= seen_at:
            return
        self._seen[lane] = at, messages
        if messages < seen:
            self.lost += seen - messages
            log.error(
                "The store lost messages that were acknowledged, as after a failover without WAIT",
                extra={"action": "write", "shard": lane, "lost": seen - messages},
            )

    async def _due_before(self, now: int, limit: int) -> list[str]:
        """The keys of those that are due, earliest first."""
        with unavailable_on_error():
            parts = await asyncio.gather(
                *(
                    self._client.zrange(shard.due, "-inf", now, byscore=True, offset=0, num=limit, withscores=True)
                    for shard in self._shards
                )
            )
        due = sorted((score, name) for part in parts for name, score in part)
        return [name.decode() for _, name in due[: min(limit, CLAIMED_AT_ONCE)]]

    async def _claim_some(
        self, earliest: list[str], now: int, decide: Callable[[Due], Draft | None]
    ) -> list[tuple[Due, Draft]]:
        by_lane: dict[int, list[str]] = defaultdict(list)
        for key in earliest:
            by_lane[self.lane(ConversationKey.parse(key))].append(key)
        parts = await asyncio.gather(*(self._claim(lane, keys, now, decide) for lane, keys in by_lane.items()))
        place = {key: place for place, key in enumerate(earliest)}
        return sorted((pair for part in parts for pair in part), key=lambda pair: place[str(pair[0].key)])

    async def _claim(
        self, lane: int, keys: list[str], now: int, decide: Callable[[Due], Draft | None]
    ) -> list[tuple[Due, Draft]]:
        offers = [(due, decide(due)) for due in await self._take(lane, keys, now)]
        claims = [(due, draft) for due, draft in offers if draft]
        with unavailable_on_error():
            await self._mend(self._shards[lane], [due.key for due, draft in offers if draft is None])
        refusals = await self.swap(lane, [draft for _, draft in claims], None) if claims else []
        return [claim for claim, refusal in zip(claims, refusals, strict=True) if refusal is None]

    async def _take(self, lane: int, keys: list[str], now: int) -> list[Due]:
        shard = self._shards[lane]
        names = [shard.due, *(shard.conversation(key) for key in keys)]
        with unavailable_on_error():
            answer = await TAKE(self._client, names, [now, now + RESERVED_MS, MESSAGES_OFFERED, *keys])
        self._clock.follow(answer[0])
        offered = []
        for number, version, body, first, payloads in _grouped(answer, 1, 5):
            key = keys[number - 1]
            try:
                offered.append(Due(ConversationKey.parse(key), _row(version, body), _messages(first, payloads)))
            except (ValueError, msgspec.MsgspecError):
                log.error("A conversation cannot be read", extra={"action": "claim", "conversation": key})
                with unavailable_on_error():
                    await self._client.zadd(shard.due, {key: now + UNREADABLE_MS})
        return offered

    async def _many(self, names: Sequence[str], *fields: str) -> list[Any]:
        """Some fields of many rows."""
        if not names:
            return []
        with unavailable_on_error():
            async with self._client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.hmget(name, fields)
                found: list[Any] = await pipeline.execute()
                return found

    async def _turns(self, shard: Shard, turn_ids: Sequence[str]) -> list[TurnRow | None]:
        found = await self._many([shard.turn(turn_id) for turn_id in turn_ids], "k", "c", "l")
        return [
            None
            if key is None
            else TurnRow(ConversationKey.parse(key.decode()), id, _closed(body), is_letter is not None)
            for id, (key, body, is_letter) in zip(turn_ids, found, strict=True)
        ]

    async def _letters(self, shard: Shard, limit: int, before: tuple[int, str] | None) -> list[TurnRow]:
        with unavailable_on_error():
            entries = await page(self._client, shard.letters, limit, before, desc=True)
        rows = await self._turns(shard, [turn_id for _, turn_id in entries])
        return [row for row in rows if row and row.is_letter]

    async def _forget(self, shard: Shard, before: int, limit: int) -> int:
        ids = await self._client.zrange(
            shard.closed, "-inf", f"({before}", byscore=True, offset=0, num=min(limit, PAGE)
        )
        rows = await self._turns(shard, [id.decode() for id in ids])
        keys: list[str] = [shard.closed]
        args: list[Any] = [before]
        for row in rows:
            if row is None or row.closed is None:
                continue
            fields: list[str] = []
            if row.closed.status != "interrupted":
                messages = await self.messages(row.key, row.closed.head, row.closed.tail)
                fields = [field for m in messages.values() for field in (f"m{m.seq}", f"i{m.id}")]
            keys += [shard.turn(row.id), shard.conversation(row.key), shard.turns(row.key)]
            args.append(encode((row.id, member(row.closed), fields)))
        return int(await FORGET(self._client, keys, args)) if len(args) > 1 else 0

    async def _scanned(self) -> AsyncIterator[tuple[int, str, list[str]]]:
        """The conversations ("c") and turns ("t") of every shard, some at a time."""
        found: dict[tuple[int, str], list[str]] = defaultdict(list)
        async for name in self._client.scan_iter(match=f"{self._options.prefix}:{{s*", count=PAGE):
            row = ROW.match(name.decode(), len(self._options.prefix))
            if row is None:
                continue
            number, kind, rest = int(row[1]), row[2], row[3]
            found[number, kind].append(rest)
            if len(found[number, kind]) == PAGE // 2:
                yield number, kind, found.pop((number, kind))
        for (number, kind), names in found.items():
            yield number, kind, names

    async def _mend(self, shard: Shard, keys: Sequence[ConversationKey]) -> int:
        if not keys:
            return 0
        args: list[Any] = []
        for key, row in zip(keys, await self.load(keys), strict=True):
            due_at = row.conversation.due_at
            args += (str(key), row.version, IDLE if due_at is None else due_at)
        return int(await MEND(self._client, [shard.due, *(shard.conversation(key) for key in keys)], args))

    async def _mend_turns(self, shard: Shard, ids: Sequence[str]) -> int:
        keys: list[str] = [shard.closed, shard.letters]
        args: list[Any] = []
        for row in await self._turns(shard, ids):
            if row is not None and row.closed is not None:
                keys += [shard.turn(row.id), shard.turns(row.key)]
                args += [row.id, row.closed.at, row.closed.head, member(row.closed)]
        return int(await MEND_TURNS(self._client, keys, args)) if args else 0

    def _shard(self, key: ConversationKey) -> Shard:
        return self._shards[self.lane(key)]


@contextmanager
def unavailable_on_error() -> Iterator[None]:
    try:
        yield
    except (TimeoutError, RedisError, OSError) as error:
        raise StoreUnavailable(f"Redis did not do as asked ({type(error).__name__}: {error}).") from error


@asynccontextmanager
async def subscribed(client: Client, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
    """The words published on a channel, on a connection of its own."""
    async with client.pubsub() as pubsub:
        await pubsub.subscribe(channel)
        yield (word["data"] async for word in pubsub.listen() if word["type"] == "message")


def _row(version: int, body: bytes) -> Row:
    return Row(version, decode_conversation(body)) if version else Row()


def _version(state: bytes | None) -> int:
    return int(state.split()[0]) if state else 0


def _messages(first: int, payloads: Sequence[bytes | None]) -> Messages:
    return {
        seq: replace(decode_message(payload[8:]), seq=seq, received_at=RECEIVED_AT.unpack(payload[:8])[0])
        for seq, payload in enumerate(payloads, first)
        if payload is not None
    }


def _closed(body: bytes | None) -> Closed | None:
    return None if body is None else decode_closed(body)


def _grouped(answer: list[Any], first: int, size: int) -> Iterator[list[Any]]:
    for place in range(first, len(answer), size):
        yield answer[place : place + size]


def _letter_order(row: TurnRow) -> tuple[int, str]:
    assert row.closed is not None
    return row.closed.at, row.id


def _place(key: ConversationKey, row: Row) -> tuple[float, str]:
    due_at = row.conversation.due_at
    return NEVER if due_at is None else due_at, str(key)
