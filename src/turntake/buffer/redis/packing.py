"""Commands packed by hiredis. redis-py does so on its blocking connections; a large batch would spend as much time
being packed in Python as in everything else."""

from typing import Any

import hiredis
from redis.asyncio import RedisCluster

from turntake.buffer.redis.client import Client


def pack_fast(client: Client) -> Client:
    """The same client, whose connections, once made, pack that way."""
    if isinstance(client, RedisCluster):
        known = client.nodes_manager
        known.connection_kwargs["connection_class"] = _packing(known.connection_kwargs["connection_class"])
        for node in known.startup_nodes.values():
            node.connection_class = _packing(node.connection_class)
    else:
        pool = client.connection_pool
        pool.connection_class = _packing(pool.connection_class)
    return client


def _packing(connection_class: Any) -> Any:
    return type(f"Packing{connection_class.__name__}", (_Packing, connection_class), {})


class _Packing:
    def pack_command(self, *args: Any) -> list[bytes]:
        """A command's name may be two words."""
        name = args[0].encode() if isinstance(args[0], str) else args[0]
        return [hiredis.pack_command((*name.split(), *args[1:]))]
