"""Looks into a Redis store, and at what its server hears."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from harness.databases import HOST, Valkey
from harness.writing import key
from turntake.buffer.redis.backend import RedisBackend, RedisStore
from turntake.buffer.redis.keys import Shard
from turntake.rules.conversation import Answered, Dead, Progress, Retry, Settlement, Touch
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import INTERRUPT, LEASE_MS, PLAIN, say


def backend_of(store: RedisStore) -> RedisBackend:
    assert isinstance(store.backend, RedisBackend)
    return store.backend


class Seen(NamedTuple):
    """A command as the server saw it; `is_inner` if a script gave it."""

    words: list[str]
    is_inner: bool

    @property
    def name(self) -> str:
        return self.words[0].upper()


END = "no more of it"
_LINE = re.compile(rb"^\+\S+ \[(\d+ )([^\]]*)\] (.*)\r\n$", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')


@contextmanager
def watched(server: Valkey) -> Iterator[list[Seen]]:
    """Every command that the server gets meanwhile, filled in at the end."""
    seen: list[Seen] = []
    with socket.create_connection((HOST, server.port), 10) as line, line.makefile("rb") as lines:
        line.sendall(b"MONITOR\r\n")
        assert lines.readline() == b"+OK\r\n"
        yield seen
        server.ask("ECHO", END)
        for text in lines:
            match = _LINE.match(text)
            assert match, text
            words = [word.decode() for word in _WORD.findall(match[3])]
            if words[-1] == END:
                break
            seen.append(Seen(words, match[2].startswith(b"lua")))


async def live_a_full_life(store: RedisStore, clock: VirtualClock) -> None:
    """Every verb, every script, every outcome, on a few conversations."""
    for number in range(6):
        await say(store, "m1", "m2", "m2", key=key(number), rules=PLAIN)
        await store.touch(key(number), Touch("composing", 100), PLAIN)
    await clock.advance(60_000)
    claims = await store.claim(6, LEASE_MS)
    assert len(claims) == 6
    await say(store, "m3", key=claims[5].key, rules=INTERRUPT)
    await store.extend(claims, LEASE_MS)
    await store.save(claims[0], Progress(("hello",), 0, True))
    settlements: list[Settlement] = [Answered(), Dead("no"), Dead("no"), Retry(10), Dead("no")]
    for claim, settlement in zip(claims[:5], settlements, strict=True):
        assert await store.settle(claim, settlement)
    letters = await store.letters.list(10)
    await store.letters.get(letters.items[0].id)
    await store.letters.retry(letters.items[0].id)
    await store.letters.discard(letters.items[1].id)
    await store.history.turn(claims[0].turn.id)
    await store.history.turns(key(0), 5)
    await store.find(key(0))
    await store.next_due()
    await store.history.forget(clock.now() + 1, clock.now())
    await store.history.forget(clock.now() + 1)
    await store.rebuild()


# The indexes are derived: what they say can be lost.


def shard_of(store: RedisStore) -> Shard:
    (shard,) = backend_of(store)._rows.shards
    return shard


def entries_of(server: Valkey, name: str) -> list[Any]:
    found: list[Any] = server.ask("ZRANGE", name, 0, -1, "WITHSCORES")
    return found
