"""Moves a slot of a cluster from one node to another, step by step, so that one can look at what happens meanwhile."""

from harness.databases import HOST, SLOTS, Cluster, Valkey, until


def owner(cluster: Cluster, slot: int) -> Valkey:
    """The node that has the slot, by what it says itself."""
    return next(node for node in cluster.nodes if _has(node, slot))


def begin_move(cluster: Cluster, slot: int, target: Valkey) -> None:
    """From here on new keys of the slot are made at the target, and whoever asks for missing ones is sent there."""
    source = owner(cluster, slot)
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", _name(source))
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", _name(target))


def move_keys(cluster: Cluster, slot: int, target: Valkey, most: int = SLOTS) -> int:
    """Moves up to so many keys of a slot whose move has begun; how many."""
    source = owner(cluster, slot)
    names = [name.decode() for name in source.ask("CLUSTER", "GETKEYSINSLOT", slot, most)]
    if names:
        source.ask("MIGRATE", HOST, target.port, "", 0, 5_000, "KEYS", *names)
    return len(names)


def end_move(cluster: Cluster, slot: int, target: Valkey) -> None:
    """Moves the keys that are left; then the slot is the target's, and every node knows it."""
    source = owner(cluster, slot)
    while move_keys(cluster, slot, target):
        pass
    others = (node for node in cluster.nodes if node not in (source, target))
    for node in (target, source, *others):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", _name(target))
    until(lambda: owner(cluster, slot) is target)


def _has(node: Valkey, slot: int) -> bool:
    mine = next(line for line in node.ask("CLUSTER", "NODES").decode().splitlines() if "myself" in line)
    ranges = [part.split("-") for part in mine.split()[8:] if not part.startswith("[")]
    return any(int(ends[0]) <= slot <= int(ends[-1]) for ends in ranges)


def _name(node: Valkey) -> str:
    return str(node.ask("CLUSTER", "MYID").decode())
