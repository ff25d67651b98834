"""The time as Redis notes it, a field of each shard; the server's clock is the one that counts."""

from contextlib import suppress
from functools import partial
from typing import Any

from redis.asyncio import RedisCluster

from turntake.buffer.engine.noted_time import NotedTime
from turntake.buffer.redis.nodes import WRITE_PATIENCE_MS, Nodes
from turntake.buffer.redis.shards import Shards
from turntake.buffer.redis.url import UNREACHABLE, Client, unavailable_on_error


class RedisNotedTime(NotedTime):
    """Every swap notes it along, in its own shard: the latest of all shards counts."""

    def __init__(self, client: Client, shards: Shards, nodes: Nodes) -> None:
        self._client = client
        self._shards = shards
        self._nodes = nodes

    async def read(self) -> tuple[int, int]:
        with unavailable_on_error:
            server_at = await self._server_time()
            seen = await self._ask_shards("HGET", "seen")
        return server_at, max((int(at or 0) for at in seen), default=0)

    async def set(self, at: int) -> None:
        with unavailable_on_error:
            await self._ask_shards("HSET", "seen", at)

    async def _server_time(self) -> int:
        """By the first node that answers."""
        nodes: list[Any] = [None]
        if isinstance(self._client, RedisCluster):
            await self._client.initialize()
            nodes = list(self._client.get_primaries())
        for node in nodes[:-1]:
            with suppress(*UNREACHABLE):
                return await self._time_of(node)
        return await self._time_of(nodes[-1])

    async def _time_of(self, node: Any) -> int:
        seconds, micros = await (self._client.time() if node is None else self._client.time(target_nodes=node))
        return int(seconds * 1000 + micros // 1000)

    async def _ask_shards(self, command: str, *args: str | int) -> list[Any]:
        """The same about the counts of all shards; those of nodes that are away are left out."""

        async def ask(numbers: list[int]) -> list[Any]:
            commands = [(command, self._shards[number].counts, *args) for number in numbers]
            return await self._nodes.pipelined(numbers[0], commands)

        nodes = self._nodes.with_their_shards(range(len(self._shards)))
        asked = {name: partial(ask, numbers) for name, numbers in nodes.items()}
        answers = await self._nodes.ask(asked, WRITE_PATIENCE_MS)
        return [answer for part in answers.values() for answer in part]
