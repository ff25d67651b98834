"""The shards of a store: which one a conversation is in, and how all of them are asked at once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from turntake.buffer.redis.keys import Shard
from turntake.rules.key import ConversationKey

T = TypeVar("T")

AT_ONCE = 32  # each question to a cluster takes a connection of its own

Entry = tuple[float, str]
"""A score and a member of a sorted set."""


class Shards:
    """All of them, by their numbers."""

    def __init__(self, prefix: str, count: int) -> None:
        self._shards = [Shard(prefix, number) for number in range(count)]

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, number: int) -> Shard:
        return self._shards[number]

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards)

    def number_of(self, key: ConversationKey) -> int:
        return key.shard_hash % len(self._shards) if len(self._shards) > 1 else 0

    def of(self, shard_hash: int) -> Shard:
        """The shard of the conversation with this hash."""
        return self._shards[shard_hash % len(self._shards)]

    async def ask_each(self, asked: Sequence[Shard], ask: Callable[[Shard], Awaitable[T]]) -> list[T]:
        """The answer of each, some at a time. Raises if any of them fails."""
        answers: list[T] = []
        for start in range(0, len(asked), AT_ONCE):
            answers += await asyncio.gather(*map(ask, asked[start : start + AT_ONCE]))
        return answers

    async def first_of_all(
        self, limit: int, read: Callable[[Shard, int], Awaitable[list[Entry]]], *, desc: bool = False
    ) -> list[tuple[Shard, Entry]]:
        """The first `limit` entries of all shards' lists together; `read` gives the first ones of one shard, in order.

        Each is asked for a little more than its share, and only where that was not enough for all it may have.
        """
        asked, count = list(self._shards), min(limit, 4 * limit // len(self._shards) + 8)
        lists: dict[Shard, list[Entry]] = {}
        while asked:
            parts = await self.ask_each(asked, lambda shard, count=count: read(shard, count))  # type: ignore[misc]
            lists.update(zip(asked, parts, strict=True))
            every = [(shard, entry) for shard, entries in lists.items() for entry in entries]
            first = sorted(every, key=lambda one: one[1], reverse=desc)[:limit]
            shown = Counter(shard for shard, _ in first)
            asked = [shard for shard in asked if shown[shard] == count < limit]
            count = limit
        return first


async def lists_or_empty(asked: Sequence[Awaitable[list[T]]]) -> list[list[T]]:
    """What several shards answer: an empty list where one fails, since a node that is down must not stop the others.

    Raises the first error if all fail. A single shard, the usual case, needs no task of its own.
    """
    if len(asked) == 1:
        return [await asked[0]]
    results = await asyncio.gather(*asked, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors and len(errors) == len(results):
        raise errors[0]
    return [[] if isinstance(result, BaseException) else result for result in results]
