"""What goes wrong with each kind of store. Every fault is recorded, and everything is whole again when it returns."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine

from chaos.history import History
from chaos.stores import ClusterSetup, PairSetup, SentinelSetup, ServerSetup, Setup, sever
from harness.databases import Server, Valkey, until
from harness.proxy import Proxy, Way
from harness.slots import begin_move, end_move, move_keys, owner

FaultCall = Callable[[], Coroutine[None, None, None]]


class StoreFaults(ABC):
    """Its faults come one after the other; `deck` has each as often as it shall be drawn."""

    def __init__(self, history: History, chance: random.Random) -> None:
        self._history = history
        self._chance = chance

    @abstractmethod
    def deck(self) -> list[FaultCall]: ...

    async def _hang(self, kind: str, server: Server, seconds: float, wait: Callable[[], None] = lambda: None) -> None:
        """Connections stay, and nothing answers."""
        with self._history.fault(kind, "store"):
            await asyncio.to_thread(server.pause)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(server.resume)
            await asyncio.to_thread(wait)

    async def _kill(self, kind: str, server: Server, wait: Callable[[], None] = lambda: None) -> None:
        """`wait` returns once the others know that it is back."""
        with self._history.fault(kind, "store"):
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(self._chance.uniform(0, 1))
            await asyncio.to_thread(server.start)
            await asyncio.to_thread(wait)


class NetworkFaults:
    """What a network does between the processes and one server."""

    def __init__(self, history: History, chance: random.Random, proxy: Proxy) -> None:
        self._history = history
        self._chance = chance
        self._proxy = proxy

    def deck(self) -> list[FaultCall]:
        return [self._cut, self._blackhole, self._one_way, self._delay, *[self._drop_replies] * 3]

    async def _cut(self) -> None:
        await self._on_the_way("cut", self._proxy.cut, self._chance.uniform(0.2, 2))

    async def _blackhole(self) -> None:
        await self._on_the_way("blackhole", self._proxy.blackhole, self._chance.uniform(0.5, 3))

    async def _one_way(self) -> None:
        lost: Way = self._chance.choice(("requests", "replies"))
        await self._on_the_way(f"lose {lost}", lambda: self._proxy.one_way(lost), self._chance.uniform(0.5, 2))

    async def _delay(self) -> None:
        ms = self._chance.randint(10, 200)
        await self._on_the_way("delay", lambda: self._proxy.delay(ms), self._chance.uniform(0.5, 3))

    async def _drop_replies(self) -> None:
        count = self._chance.randint(1, 8)
        await self._on_the_way("drop replies", lambda: self._proxy.drop_replies(count), self._chance.uniform(0.1, 1))

    async def _on_the_way(self, kind: str, begin: Callable[[], None], seconds: float) -> None:
        with self._history.fault(kind, "network"):
            begin()
            await asyncio.sleep(seconds)
            self._proxy.heal()


class ServerFaults(StoreFaults):
    """One server, and the network before it."""

    def __init__(self, setup: ServerSetup, history: History, chance: random.Random) -> None:
        super().__init__(history, chance)
        self._setup = setup

    def deck(self) -> list[FaultCall]:
        network = NetworkFaults(self._history, self._chance, self._setup.proxy).deck()
        own = [self._restart, *[self._kill_server] * 2, self._sever, self._hang_server]
        return [*network, *network, *own]

    async def _restart(self) -> None:
        with self._history.fault("restart store", "store"):
            await asyncio.to_thread(self._setup.server.stop)
            await asyncio.to_thread(self._setup.server.start)

    async def _kill_server(self) -> None:
        await self._kill("kill store", self._setup.server)

    async def _hang_server(self) -> None:
        await self._hang("hang store", self._setup.server, self._chance.uniform(0.5, 4))

    async def _sever(self) -> None:
        with self._history.fault("sever", "store"):
            await asyncio.to_thread(self._setup.sever)


class PairFaults(StoreFaults):
    """The two change places, planned and not, and the replica that everybody waits for is away."""

    def __init__(self, setup: PairSetup, history: History, chance: random.Random) -> None:
        super().__init__(history, chance)
        self._pair = setup.pair
        self._proxy = setup.proxy

    def deck(self) -> list[FaultCall]:
        network = NetworkFaults(self._history, self._chance, self._proxy).deck()
        own = [self._hand_over, self._promote, self._promote_one_behind, self._hang_replica, self._restart_replica]
        return [*network, *own, *own]

    async def _hand_over(self) -> None:
        """Those who are connected stay with the old primary, which is read-only from then on."""
        with self._history.fault("promote, planned", "store"):
            await asyncio.to_thread(self._pair.hand_over)
            self._proxy.lead_to(self._pair.primary.port)

    async def _promote(self) -> None:
        with self._history.fault("promote", "store"):
            await asyncio.to_thread(self._pair.primary.kill)
            await self._take_over()

    async def _promote_one_behind(self) -> None:
        """Nothing is acknowledged while the replica is cut off; what only the primary has is gone afterwards."""
        with self._history.fault("promote, replica behind", "store"):
            await asyncio.to_thread(self._pair.cut_off)
            await asyncio.sleep(self._chance.uniform(0.3, 1.5))
            await asyncio.to_thread(self._pair.primary.kill)
            await asyncio.to_thread(self._pair.replica.resume)
            await self._take_over()

    async def _hang_replica(self) -> None:
        await self._hang("hang replica", self._pair.replica, self._chance.uniform(1, 4), self._pair.wait)

    async def _restart_replica(self) -> None:
        await self._kill("kill replica", self._pair.replica, self._pair.wait)

    async def _take_over(self) -> None:
        await asyncio.to_thread(self._pair.promote)
        self._proxy.lead_to(self._pair.primary.port)
        await asyncio.to_thread(self._pair.follow)


class SentinelFaults(StoreFaults):
    """The primary is replaced by those who watch, because it is gone or because they are told to."""

    def __init__(self, setup: SentinelSetup, history: History, chance: random.Random) -> None:
        super().__init__(history, chance)
        self._group = setup.group

    def deck(self) -> list[FaultCall]:
        return [self._fail_over, self._fail_over_to_one_behind, self._kill_primary, self._hang_primary, self._sever]

    async def _fail_over(self) -> None:
        with self._history.fault("fail over", "store"):
            _, old = self._replica_and_primary()
            watcher = self._group.watchers[0]
            await asyncio.to_thread(watcher.ask, "SENTINEL", "FAILOVER", self._group.name)
            await asyncio.to_thread(self._wait_for_successor, old)

    async def _fail_over_to_one_behind(self) -> None:
        with self._history.fault("fail over, replica behind", "store"):
            replica, old = self._replica_and_primary()
            await asyncio.to_thread(replica.pause)
            await asyncio.to_thread(old.ask, "CLIENT", "KILL", "TYPE", "replica")
            await asyncio.sleep(self._chance.uniform(0.2, 0.8))
            await asyncio.to_thread(old.kill)
            await asyncio.to_thread(replica.resume)
            await asyncio.to_thread(self._wait_for_successor, old)

    async def _kill_primary(self) -> None:
        with self._history.fault("kill primary", "store"):
            _, old = self._replica_and_primary()
            await asyncio.to_thread(old.kill)
            await asyncio.to_thread(self._wait_for_successor, old)

    async def _hang_primary(self) -> None:
        """It comes back in the belief that it is the primary, until somebody tells it otherwise."""
        with self._history.fault("hang primary", "store"):
            _, old = self._replica_and_primary()
            await asyncio.to_thread(old.pause)
            await asyncio.sleep(self._chance.uniform(0.3, 4))
            await asyncio.to_thread(old.resume)
            await asyncio.sleep(1.5)  # longer than the watchers wait, so that a failover which they began is seen
            await asyncio.to_thread(until, self._is_whole, 60)

    async def _sever(self) -> None:
        with self._history.fault("sever", "store"):
            await asyncio.to_thread(sever, self._replica_and_primary()[1])

    def _replica_and_primary(self) -> tuple[Valkey, Valkey]:
        two = (self._group.replica, self._group.primary)
        return two if two[1].port == self._group.primary_port() else (two[1], two[0])

    def _wait_for_successor(self, old: Valkey) -> None:
        until(lambda: self._group.primary_port() != old.port, 60)
        if not old.is_running:
            old.start()
        until(self._is_whole, 60)

    def _is_whole(self) -> bool:
        """One follows the other, and every watcher knows which."""
        replica, primary = self._replica_and_primary()
        followed = replica.ask("INFO", "replication")
        ports = {int(w.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._group.name)[1]) for w in self._group.watchers}
        is_following = followed.get("master_port") == primary.port and followed.get("master_link_status") == "up"
        return bool(is_following and ports == {primary.port} and primary.ask("ROLE")[0] == b"master")


class ClusterFaults(StoreFaults):
    """A node of several is gone, hangs or forgets, or a slot moves to another."""

    def __init__(self, setup: ClusterSetup, history: History, chance: random.Random) -> None:
        super().__init__(history, chance)
        self._cluster = setup.cluster

    def deck(self) -> list[FaultCall]:
        return [self._kill_node, *[self._hang_node] * 2, *[self._move_slot] * 3, self._sever]

    async def _kill_node(self) -> None:
        await self._kill("kill node", self._chance.choice(self._cluster.nodes), self._cluster.wait)

    async def _hang_node(self) -> None:
        node, seconds = self._chance.choice(self._cluster.nodes), self._chance.uniform(0.5, 4)
        await self._hang("hang node", node, seconds, self._cluster.wait)

    async def _sever(self) -> None:
        with self._history.fault("sever", "store"):
            for node in self._cluster.nodes:
                await asyncio.to_thread(sever, node)

    async def _move_slot(self) -> None:
        """A few keys at a time, while everybody goes on writing to them."""
        with self._history.fault("move slot", "store"):
            slot = await asyncio.to_thread(self._used_slot)
            source = await asyncio.to_thread(owner, self._cluster, slot)
            target = self._chance.choice([node for node in self._cluster.nodes if node is not source])
            await asyncio.to_thread(begin_move, self._cluster, slot, target)
            await asyncio.sleep(self._chance.uniform(0, 0.5))
            for _ in range(10):
                await asyncio.to_thread(move_keys, self._cluster, slot, target, 5)
                await asyncio.sleep(0.05)
            await asyncio.to_thread(end_move, self._cluster, slot, target)

    def _used_slot(self) -> int:
        """One that holds something of the store: where the index of one of its shards is."""
        node = self._chance.choice(self._cluster.nodes)
        with node.client() as client:
            names = sorted(client.scan_iter("turntake:{s*}:due", count=10_000))
        name = self._chance.choice(names) if names else b"turntake:{s0}:due"
        return int(node.ask("CLUSTER", "KEYSLOT", name.decode()))


def store_faults(setup: Setup, history: History, chance: random.Random) -> StoreFaults | None:
    """None for a store without a server."""
    match setup:
        case ServerSetup():
            return ServerFaults(setup, history, chance)
        case PairSetup():
            return PairFaults(setup, history, chance)
        case SentinelSetup():
            return SentinelFaults(setup, history, chance)
        case ClusterSetup():
            return ClusterFaults(setup, history, chance)
    return None
