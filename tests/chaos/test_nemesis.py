"""Faults are drawn like cards, and whoever speaks to the agent from a port is found through the way there."""

import asyncio
import random
import signal
from itertools import islice
from pathlib import Path

from chaos.fleet import Fleet, Process
from chaos.history import History
from chaos.nemesis import Nemesis, Ways
from chaos.stores import SqliteSetup
from harness.proxy import Proxy


class Victim(Process):
    """Speaks from one port, and notes how it was ended."""

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(f"work{port}", "work", {}, folder)
        self.port = port
        self.ended: list[signal.Signals] = []

    def speaks_from(self, port: int) -> bool:
        return port == self.port

    async def restart(self, how: signal.Signals) -> None:
        self.ended.append(how)


def nemesis(fleet: Fleet, ways: Ways, history: History) -> Nemesis:
    return Nemesis(fleet, SqliteSetup("sqlite:///nowhere"), ways, history, random.Random(1), lease_s=2)


async def test_poison_kills_whoever_handed_it_over(tmp_path: Path) -> None:
    history, ports = History(), asyncio.Queue[int]()

    async def agent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports.put_nowait(writer.get_extra_info("peername")[1])

    server = await asyncio.start_server(agent, "127.0.0.1", 0)
    async with server, Proxy(server.sockets[0].getsockname()[1]) as way:
        _, writer = await asyncio.open_connection("127.0.0.1", way.port)
        guilty, other = (Victim(port, tmp_path) for port in (writer.get_extra_info("sockname")[1], 1))
        judge = nemesis(Fleet([other, guilty]), Ways(way, way), history)
        judge.poison(await ports.get())
        await judge.ended()
        writer.close()
    assert (guilty.ended, other.ended) == ([signal.SIGKILL], [])
    assert [(fault.kind, fault.target) for fault in history.faults] == [("poison", guilty.name)]


async def test_every_kind_of_fault_is_drawn_before_one_comes_again(tmp_path: Path) -> None:
    way = Proxy(1)
    judge = nemesis(Fleet([]), Ways(way, way), History())
    deck = judge.process_faults()
    drawn = list(islice(judge._drawn(deck), 2 * len(deck)))
    for half in (drawn[: len(deck)], drawn[len(deck) :]):
        assert sorted(half, key=str) == sorted(deck, key=str)


async def test_an_agent_that_is_away_refuses_connections_and_comes_back() -> None:
    history = History()
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server, Proxy(server.sockets[0].getsockname()[1]) as way:
        judge = nemesis(Fleet([]), Ways(way, way), history)
        judge._chance.uniform = lambda a, b: 0.0  # type: ignore[method-assign]
        for fault in judge.outside_faults():
            await fault()
        _, writer = await asyncio.open_connection("127.0.0.1", way.port)
        writer.close()
    assert [fault.kind for fault in history.faults] == ["agent away", "platform away"]
