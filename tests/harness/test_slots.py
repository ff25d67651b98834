"""A slot moves from one node to another while its keys are in use."""

from pathlib import Path

import pytest
from redis.cluster import RedisCluster
from redis.exceptions import TryAgainError

from harness.databases import Cluster, Valkey
from harness.slots import begin_move, end_move, move_keys, owner


def other(cluster: Cluster, node: Valkey) -> Valkey:
    return next(one for one in cluster.nodes if one is not node)


def test_a_slot_moves_with_its_keys(tmp_path: Path) -> None:
    with (
        Cluster(tmp_path, is_safe=False) as cluster,
        RedisCluster.from_url(cluster.url.replace("+cluster", "")) as client,
    ):
        for number in range(20):
            client.set(f"{{a}}{number}", number)
        slot = client.keyslot("{a}")
        source = owner(cluster, slot)
        target = other(cluster, source)
        begin_move(cluster, slot, target)
        assert move_keys(cluster, slot, target, 5) == 5
        with pytest.raises(TryAgainError):
            source.ask("MGET", *(f"{{a}}{number}" for number in range(20)))
        end_move(cluster, slot, target)
        assert owner(cluster, slot) is target
        assert [int(client.get(f"{{a}}{number}") or 0) for number in range(20)] == list(range(20))
