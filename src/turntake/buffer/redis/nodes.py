"""The servers of a cluster, asked side by side: one that does not answer in time is left out, and asked again later.

How this works: `ask` starts one task for each node and waits for a moment. Whoever answered by then counts. A task that
is not done goes on by itself, and its node is asked nothing else until it ends; if it fails, the node has a pause, each
time twice as long. So a node that hangs costs one look a moment, and nothing afterwards. A single server has nobody to
go on with: it is waited for, and its errors are raised.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis.asyncio import RedisCluster
from redis.exceptions import AskError, MovedError
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import TimeoutError as RedisTimeout

from turntake.buffer.redis.scripts import pipelined
from turntake.buffer.redis.shards import Shards
from turntake.buffer.redis.url import TIMEOUT_MS, UNREACHABLE, Client
from turntake.errors import StoreUnavailable

log = logging.getLogger("turntake")

T = TypeVar("T")

# A node answers in a millisecond or two; after a hundred times that, the others have waited long enough for it.
PATIENCE_MS = 200
# A node that just answered and now must write what it offered: what it takes late has to be handed back.
WRITE_PATIENCE_MS = 1_000
# A node that lost one connection is back by then. It doubles: one that is down for minutes is asked every two seconds,
# and left out for no longer than that once it is back.
FIRST_PAUSE_MS = 200
LONGEST_PAUSE_MS = 2_000


class Nodes:
    """Real time, whatever clock the store has: nobody can hurry a server."""

    def __init__(self, client: Client, shards: Shards) -> None:
        self._client = client
        self._shards = shards
        self.is_cluster = isinstance(client, RedisCluster)
        self._slots = [client.keyslot(shard.due) for shard in shards] if self.is_cluster else []
        self._owing: dict[str, asyncio.Future[Any]] = {}
        self._pauses: dict[str, tuple[float, int]] = {}
        self._background: set[asyncio.Future[None]] = set()
        self._failed = ""

    def with_their_shards(self, numbers: Iterable[int]) -> dict[str, list[int]]:
        """The nodes that have these shards, by name, as far as we know."""
        if not self.is_cluster:
            return {"": list(numbers)}
        nodes: dict[str, list[int]] = {}
        for number in numbers:
            nodes.setdefault(self._node_of(number), []).append(number)
        return nodes

    async def ask(
        self,
        asked: Mapping[str, Callable[[], Awaitable[T]]],
        patience_ms: int = PATIENCE_MS,
        late: Callable[[T], Awaitable[None]] | None = None,
    ) -> dict[str, T]:
        """The answers of those nodes that gave one in time; what comes later goes to `late`.

        Raises if there is no answer but errors, or no node of the cluster is left.
        """
        if not self.is_cluster:
            return {name: await ask() for name, ask in asked.items()}
        tasks = {name: self._start(name, ask) for name, ask in asked.items() if self._is_expected(name)}
        await self._settled(tasks, patience_ms)
        for task in tasks.values():
            if not task.done() and late is not None:
                self._keep(_passed_on(task, late))
        answers = {name: task.result() for name, task in tasks.items() if task.done() and task.exception() is None}
        if not answers:
            self._raise_unless_others_answer(list(tasks.values()))
        return answers

    async def pipelined(self, number: int, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers of the node with this shard. If it is gone, the cluster is learned anew by whoever asks next; if
        it gave some of its shards away, redis-py finds out where they are.

        Not by redis-py's own pipeline: that one, when its node is gone, hangs up on all others too."""
        if not self.is_cluster:
            async with self._client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return list(await pipeline.execute())
        if self._client._initialize:
            await self._client.initialize(last_failed_node_name=self._failed)
        node = self._client.nodes_manager.get_node_from_slot(self._slots[number])
        try:
            return await pipelined(node, commands)
        except (MovedError, AskError):
            return list(await asyncio.gather(*(self._client.execute_command(*command) for command in commands)))
        except UNREACHABLE:
            self._client._initialize, self._failed = True, node.name
            self._client.nodes_manager.move_node_to_end_of_cached_nodes(node.name)
            raise

    async def unless_away(self, number: int, ask: Callable[[], Awaitable[T]]) -> T:
        """Raises at once while the shard's node is known to be away: to ask it would only make redis-py learn the whole
        cluster anew, again and again. One that is merely slow is asked."""
        if not self.is_cluster:
            return await ask()
        name = self._node_of(number)
        if self._has_failed(name) and not self._is_expected(name):
            raise StoreUnavailable("The node of the cluster that has this conversation does not answer.")
        task = self._start(name, ask)
        return await task

    def close(self) -> None:
        for task in (*self._owing.values(), *self._background):
            task.cancel()

    def _node_of(self, number: int) -> str:
        try:
            return str(self._client.nodes_manager.get_node_from_slot(self._slots[number]).name)
        except (KeyError, *UNREACHABLE):  # nobody has it at the moment
            return ""

    def _raise_unless_others_answer(self, tasks: "Sequence[asyncio.Future[Any]]") -> None:
        for error in (task.exception() for task in tasks if task.done()):
            if error is not None and not _is_away(error):
                raise error
        if self._are_all_away():
            raise StoreUnavailable("No node of the cluster answers.")

    def _are_all_away(self) -> bool:
        return all(name in self._pauses for name in self.with_their_shards(range(len(self._slots))))

    async def _settled(self, tasks: "Mapping[str, asyncio.Future[Any]]", patience_ms: int) -> None:
        """Returns once all are done or time is up. In two halves: if this process stood still, answers that came
        meanwhile are read in the second. If no node of the cluster has answered, there is nobody to go on with: then it
        waits for the first."""
        for _ in range(2):
            if pending := [task for task in tasks.values() if not task.done()]:
                await asyncio.wait(pending, timeout=patience_ms / 2000)
        for name, task in tasks.items():
            if not task.done():
                self._owing[name] = task
                self._left_out(name, "silent")
        if self._are_all_away() and (pending := [task for task in tasks.values() if not task.done()]):
            await asyncio.wait(pending, timeout=TIMEOUT_MS / 1000, return_when=asyncio.FIRST_COMPLETED)

    def _is_expected(self, name: str) -> bool:
        """Whether the node may be asked: not while it owes an answer, nor in its pause."""
        until, _ = self._pauses.get(name, (0.0, 0))
        return name not in self._owing and asyncio.get_running_loop().time() >= until

    def _has_failed(self, name: str) -> bool:
        """Since it last answered. One that is only late has no pause yet."""
        return self._pauses.get(name, (0.0, 0))[0] > 0

    def _start(self, name: str, ask: Callable[[], Awaitable[T]]) -> "asyncio.Future[T]":
        task = asyncio.ensure_future(ask())
        task.add_done_callback(lambda done: self._ended(name, done))
        return task

    def _ended(self, name: str, task: "asyncio.Future[Any]") -> None:
        if self._owing.get(name) is task:
            del self._owing[name]
        if task.cancelled():
            return
        error = task.exception()
        if error is None or not _is_away(error):
            if self._pauses.pop(name, None):
                log.info("A part of the store answers again", extra={"action": "look", "node": name})
            return
        self._left_out(name, type(error).__name__)
        _, pause_ms = self._pauses[name]
        until = asyncio.get_running_loop().time() + pause_ms / 1000
        self._pauses[name] = until, min(2 * pause_ms, LONGEST_PAUSE_MS)

    def _keep(self, work: Awaitable[None]) -> None:
        """Work that nobody waits for; Python forgets a task that nothing refers to."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _left_out(self, name: str, why: str) -> None:
        if name not in self._pauses:
            self._pauses[name] = 0.0, FIRST_PAUSE_MS
            text = "A part of the store does not answer; going on without it"
            log.warning(text, extra={"action": "look", "node": name, "error": why})


def _is_away(error: BaseException) -> bool:
    """Whether nobody answered; an error that the node gave is an answer."""
    return isinstance(error.__cause__ or error, ConnectionLost | RedisTimeout | OSError)


async def _passed_on(task: "asyncio.Future[T]", late: Callable[[T], Awaitable[None]]) -> None:
    with suppress(Exception):  # it failed after all, and was noted where it did
        await late(await task)
