"""Five corrections to redis-py.

How this works: a redis-py client makes its connections from a class that it was given. Before the first connection is
made, `patch` puts a subclass in that place, which differs in four ways:

- Commands are packed by hiredis, in C. redis-py does so on its blocking connections only; in Python, packing a large
  batch would take as long as everything else together.
- Writing to a connection that broke raises RuntimeError under uvloop, and AttributeError if somebody else closed it at
  that moment, as redis-py does when it learns a cluster anew. Both become redis-py's own ConnectionError, which it
  answers by connecting again.
- A server that is no longer the primary, but keeps its connections, would be asked for ever. Its connections are closed
  instead, so that the next one leads to wherever the server's name leads now. redis-py does so behind Sentinels only,
  and a cluster says itself where a slot went.
- Every connection is remembered for as long as it lives. redis-py forgets those to a node that left the cluster without
  closing them; so we close what is left when the store closes.

And a cluster's client asks one node for the table of all commands each time that it learns the cluster anew, which it
does after every error. If that is the node that is away, nothing works any more, on no node. `CommandTable` asks once,
and whoever answers.
"""

from contextlib import suppress
from typing import Any
from weakref import WeakSet

import hiredis
from redis._parsers.commands import AsyncCommandsParser
from redis.asyncio import RedisCluster
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import MasterDownError, ReadOnlyError

from turntake.buffer.redis.url import UNREACHABLE, Client


def patch(client: Client) -> WeakSet[Any]:
    """Patches a client that has not connected yet; returns the set in which its connections will be found."""
    connections: WeakSet[Any] = WeakSet()
    if isinstance(client, RedisCluster):
        manager = client.nodes_manager
        client.commands_parser = CommandTable(client)
        # Nodes that are found later take their class from here, those named in the URL have theirs already.
        found_later = manager.connection_kwargs["connection_class"]
        manager.connection_kwargs["connection_class"] = _patched(found_later, connections, is_cluster=True)
        for node in manager.startup_nodes.values():
            node.connection_class = _patched(node.connection_class, connections, is_cluster=True)
    else:
        pool = client.connection_pool
        pool.connection_class = _patched(pool.connection_class, connections, is_cluster=False)
    return connections


class CommandTable(AsyncCommandsParser):
    """The names of all commands and where their keys are: the same on every node, and a hundred kilobytes."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    async def initialize(self, node: Any = None) -> None:
        if self.commands:
            return
        others = [other for other in self._client.get_primaries() if other is not node]
        for one in (node, *others[:-1]) if others else ():
            with suppress(*UNREACHABLE):
                return await super().initialize(one)
        await super().initialize(others[-1] if others else node)


def _broken(connection: Any) -> tuple[type[Exception], ...]:
    """What an error in writing means that the connection is gone."""
    return (RuntimeError, AttributeError) if connection._writer is None else (RuntimeError,)


def _patched(connection_class: Any, connections: WeakSet[Any], *, is_cluster: bool) -> Any:
    class Patched(connection_class):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            connections.add(self)

        def pack_command(self, *args: Any) -> list[bytes]:
            # redis-py writes some commands' names in two words, such as "CONFIG GET"; to Redis they are two arguments.
            name = args[0].encode() if isinstance(args[0], str) else args[0]
            return [hiredis.pack_command((*name.split(), *args[1:]))]

        async def send_packed_command(self, *args: Any, **options: Any) -> None:
            try:
                await super().send_packed_command(*args, **options)
            except _broken(self) as error:
                await self.disconnect(nowait=True)
                raise ConnectionLost(str(error)) from error

        async def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return await super().read_response(*args, **options)
            except (ReadOnlyError, MasterDownError) as error:
                if is_cluster:
                    raise
                await self.disconnect(nowait=True)
                raise ConnectionLost(f"It is no longer the primary: {error}") from error

    return Patched
