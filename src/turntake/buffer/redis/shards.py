"""The shards of a store: which one a conversation is in, and how all of them are asked at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from turntake.buffer.redis.keys import Shard
from turntake.rules.key import ConversationKey

T = TypeVar("T")


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
        return key.shard_hash % len(self._shards)

    def of(self, shard_hash: int) -> Shard:
        """The shard of the conversation with this hash."""
        return self._shards[shard_hash % len(self._shards)]

    async def ask_all(self, ask: Callable[[Shard], Awaitable[T]]) -> list[T]:
        """Every shard's answer. Raises if any shard fails."""
        if len(self._shards) == 1:
            return [await ask(self._shards[0])]
        return list(await asyncio.gather(*map(ask, self._shards)))

    async def ask_reachable(self, ask: Callable[[Shard], Awaitable[list[T]]]) -> list[list[T]]:
        """Every shard's list, an empty one where a shard fails. Raises if all fail."""
        return await lists_or_empty([ask(shard) for shard in self._shards])


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
