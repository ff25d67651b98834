"""redis-py's connections, mended in three places.

- Commands are packed by hiredis. redis-py does so on its blocking connections only; here a large batch would spend as
  much time being packed in Python as in everything else.
- A connection that broke, written to once more, raises RuntimeError under uvloop: that is a lost connection too.
- Those to a node that left the cluster are dropped and never closed; so we remember them all, for as long as they live.
"""

from typing import Any
from weakref import WeakSet

import hiredis
from redis.asyncio import RedisCluster
from redis.exceptions import ConnectionError as ConnectionLost

from turntake.buffer.redis.url import Client


def mend(client: Client) -> WeakSet[Any]:
    """Mends the connections that the client has not made yet; returns where each will be found."""
    made: WeakSet[Any] = WeakSet()
    if isinstance(client, RedisCluster):
        known = client.nodes_manager
        known.connection_kwargs["connection_class"] = _mended(known.connection_kwargs["connection_class"], made)
        for node in known.startup_nodes.values():
            node.connection_class = _mended(node.connection_class, made)
    else:
        pool = client.connection_pool
        pool.connection_class = _mended(pool.connection_class, made)
    return made


def database_of(client: Client) -> int:
    """The number of its database; a cluster has one only."""
    return 0 if isinstance(client, RedisCluster) else client.connection_pool.connection_kwargs.get("db") or 0


def _mended(connection_class: Any, made: WeakSet[Any]) -> Any:
    class Mended(connection_class):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.add(self)

        def pack_command(self, *args: Any) -> list[bytes]:
            """A command's name may be two words."""
            name = args[0].encode() if isinstance(args[0], str) else args[0]
            return [hiredis.pack_command((*name.split(), *args[1:]))]

        async def send_packed_command(self, *args: Any, **options: Any) -> None:
            try:
                await super().send_packed_command(*args, **options)
            except RuntimeError as error:
                await self.disconnect(nowait=True)
                raise ConnectionLost(str(error)) from error

    return Mended
