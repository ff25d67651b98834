"""The connection that all calls share."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from redis.exceptions import NoScriptError, ResponseError

from harness.databases import Valkey, until
from harness.proxy import Proxy
from turntake.buffer.redis import multiplexer as lines
from turntake.buffer.redis.multiplexer import Line
from turntake.buffer.redis.redis_py_patches import mend
from turntake.buffer.redis.url import TIMEOUT_S, Client, connect, hang_up
from turntake.clock import SystemClock


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("line"), is_safe=False) as server:
        yield server


@pytest_asyncio.fixture
async def client(server: Valkey) -> AsyncIterator[Client]:
    client = connect(f"{server.url}/3")
    mend(client)
    yield client
    await hang_up(client)


@pytest.fixture
def line(client: Client) -> Line:
    return Line(client)


async def test_each_caller_gets_their_own_answer(line: Line) -> None:
    answers = await asyncio.gather(*(line.execute_command("ECHO", f"n{number}") for number in range(500)))
    assert answers == [f"n{number}".encode() for number in range(500)]


async def test_a_caller_who_gave_up_takes_nobody_elses_answer(line: Line) -> None:
    await line.execute_command("PING")
    calls = [asyncio.create_task(line.execute_command("ECHO", str(number))) for number in range(10)]
    await SystemClock().sleep(0)
    calls[4].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers.pop(4), asyncio.CancelledError)
    assert answers == [str(number).encode() for number in range(10) if number != 4]


async def test_it_speaks_to_the_database_of_the_url(line: Line, client: Client, server: Valkey) -> None:
    await line.execute_command("SET", "where", "here")
    assert await client.get("where") == b"here"
    assert server.ask("GET", "where") is None, "database 0 has nothing"


async def test_errors_are_those_of_redis_py(line: Line) -> None:
    with pytest.raises(NoScriptError):
        await line.execute_command("EVALSHA", "0" * 40, 0)
    await line.execute_command("SET", "text", "t")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await line.execute_command("HGET", "text", "field")
    assert await line.execute_command("ECHO", "on") == b"on"


async def test_a_cut_connection_costs_one_more_call(line: Line, server: Valkey) -> None:
    mine = await line.execute_command("CLIENT", "ID")
    server.ask("CLIENT", "KILL", "ID", mine)
    assert await line.execute_command("ECHO", "still") == b"still"
    assert await line.execute_command("CLIENT", "ID") != mine


async def test_many_connections_cut_leave_none_behind(line: Line, client: Client, server: Valkey) -> None:
    for _ in range(20):
        server.ask("CLIENT", "KILL", "ID", await line.execute_command("CLIENT", "ID"))
        await line.execute_command("PING")
    assert len(client.connection_pool._in_use_connections) == 1


async def test_an_answer_that_does_not_come_is_asked_for_again(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody closes the connection; it only never answers any more."""
    monkeypatch.setattr(lines, "TIMEOUT_S", 0.2)
    async with Proxy(server.port) as proxy:
        client = connect(f"redis://127.0.0.1:{proxy.port}/3")
        line = Line(client)
        await line.execute_command("SET", "n", 0)
        assert line._wire is not None
        proxy.one_way("replies")
        asking = asyncio.create_task(line.execute_command("INCR", "n"))
        await asyncio.to_thread(until, lambda: line._wire is not None and line._wire.is_lost)
        proxy.heal()
        assert await asking >= 2, "the first was carried out and its answer lost"
        await hang_up(client)


async def test_it_ends_at_once_with_its_client(server: Valkey) -> None:
    client = connect(server.url)
    await Line(client).execute_command("PING")
    async with asyncio.timeout(TIMEOUT_S / 2):
        await hang_up(client)
