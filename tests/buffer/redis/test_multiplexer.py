"""The connection that all calls share."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from redis.exceptions import ConnectionError, NoScriptError, ResponseError

from harness.databases import Valkey, until
from harness.proxy import Proxy
from turntake.buffer.redis import multiplexer
from turntake.buffer.redis.multiplexer import Multiplexer
from turntake.buffer.redis.redis_py_patches import patch
from turntake.buffer.redis.url import TIMEOUT_MS, Client, connect, hang_up


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("multiplexer"), is_safe=False) as server:
        yield server


@pytest_asyncio.fixture
async def client(server: Valkey) -> AsyncIterator[Client]:
    client = connect(f"{server.url}/3")
    patch(client)
    yield client
    await hang_up(client)


@pytest.fixture
def shared(client: Client) -> Multiplexer:
    return Multiplexer(client)


async def test_each_caller_gets_their_own_answer(shared: Multiplexer) -> None:
    answers = await asyncio.gather(*(shared.execute_command("ECHO", f"n{number}") for number in range(500)))
    assert answers == [f"n{number}".encode() for number in range(500)]


async def test_a_caller_who_gave_up_takes_nobody_elses_answer(shared: Multiplexer) -> None:
    await shared.execute_command("PING")
    calls = [asyncio.create_task(shared.execute_command("ECHO", str(number))) for number in range(10)]
    await asyncio.wait(calls, timeout=0)
    calls[4].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers.pop(4), asyncio.CancelledError)
    assert answers == [str(number).encode() for number in range(10) if number != 4]


async def test_it_speaks_to_the_database_of_the_url(shared: Multiplexer, client: Client, server: Valkey) -> None:
    await shared.execute_command("SET", "where", "here")
    assert await client.get("where") == b"here"
    assert server.ask("GET", "where") is None, "database 0 has nothing"


async def test_errors_are_those_of_redis_py(shared: Multiplexer) -> None:
    with pytest.raises(NoScriptError):
        await shared.execute_command("EVALSHA", "0" * 40, 0)
    await shared.execute_command("SET", "text", "t")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await shared.execute_command("HGET", "text", "field")
    assert await shared.execute_command("ECHO", "on") == b"on"


async def test_a_cut_connection_costs_one_more_call(shared: Multiplexer, server: Valkey) -> None:
    mine = await shared.execute_command("CLIENT", "ID")
    server.ask("CLIENT", "KILL", "ID", mine)
    assert await shared.execute_command("ECHO", "still") == b"still"
    assert await shared.execute_command("CLIENT", "ID") != mine


async def test_many_connections_cut_leave_none_behind(shared: Multiplexer, client: Client, server: Valkey) -> None:
    for _ in range(20):
        server.ask("CLIENT", "KILL", "ID", await shared.execute_command("CLIENT", "ID"))
        await shared.execute_command("PING")
    assert len(client.connection_pool._in_use_connections) == 1


async def test_an_answer_that_does_not_come_is_asked_for_again(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody closes the connection; it only never answers any more."""
    monkeypatch.setattr(multiplexer, "TIMEOUT_MS", 200)
    async with Proxy(server.port) as proxy:
        client = connect(f"redis://127.0.0.1:{proxy.port}/3")
        shared = Multiplexer(client)
        await shared.execute_command("SET", "n", 0)
        assert shared._protocol is not None
        proxy.one_way("replies")
        asking = asyncio.create_task(shared.execute_command("INCR", "n"))
        await asyncio.to_thread(until, lambda: shared._protocol is not None and shared._protocol.is_lost)
        proxy.heal()
        assert await asking >= 2, "the first was carried out and its answer lost"
        await hang_up(client)


async def test_it_ends_at_once_with_its_client(server: Valkey) -> None:
    client = connect(server.url)
    await Multiplexer(client).execute_command("PING")
    async with asyncio.timeout(TIMEOUT_MS / 2000):
        await hang_up(client)


async def test_a_server_that_became_a_replica_is_left(shared: Multiplexer, server: Valkey) -> None:
    """Its name may lead to the new primary by now, which only a new connection finds out."""
    mine = await shared.execute_command("CLIENT", "ID")
    server.ask("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(ConnectionError, match="no longer the primary"):
        await shared.execute_command("SET", "n", 1)
    server.ask("REPLICAOF", "NO", "ONE")
    assert await shared.execute_command("SET", "n", 1) == b"OK"
    assert await shared.execute_command("CLIENT", "ID") != mine
