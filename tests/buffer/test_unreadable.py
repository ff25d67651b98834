"""A stored message that cannot be read: its turn is a dead letter with the bytes as they are, and harms nobody."""

from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from harness.databases import Postgres, Valkey
from harness.postgres_store import ask
from harness.turns import AT_ONCE, answered_turns, say
from turntake import ConversationKey, Turn, TurnTake
from turntake.buffer.store import Store
from turntake.rules.message import UNREADABLE
from turntake.testing.clock import VirtualClock

ADA = ConversationKey.of("ada")
NEIGHBOURS = [f"p{number}" for number in range(20)]
SPOILT = b"\xff"  # no value begins with this byte


def spoil_sqlite(request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue("tmp_path")
    connection = apsw.Connection(str(path / "turntake.db"))
    own = "number = (SELECT number FROM conversations WHERE key = ?) AND message_id IS NOT NULL"
    connection.execute(f"UPDATE conversations SET body = CAST(? || body AS BLOB) WHERE {own}", (SPOILT, str(ADA)))
    connection.close()


def spoil_postgres(request: pytest.FixtureRequest) -> None:
    server: Postgres = request.getfixturevalue("postgres")
    own = "conversation = (SELECT id FROM turntake.conversations WHERE key = %s)"
    url = server.url.rpartition("/")[0] + "/traps"
    ask(url, f"UPDATE turntake.messages SET payload = %s::bytea || payload WHERE {own}", SPOILT, str(ADA))


def spoil_redis(request: pytest.FixtureRequest) -> None:
    server: Valkey = request.getfixturevalue("valkey")
    (name,) = [name for name in server.ask("KEYS", "*") if name.endswith(str(ADA).encode())]
    with server.client() as client:
        payload = client.hget(name, "m1")
        assert isinstance(payload, bytes)
        client.hset(name, "m1", payload[:8] + SPOILT + payload[8:])


SPOIL: dict[str, Callable[[pytest.FixtureRequest], None]] = {
    "sqlite": spoil_sqlite,
    "postgres": spoil_postgres,
    "redis": spoil_redis,
}


@pytest.mark.parametrize("store", ["sqlite", "redis", "postgres"], indirect=True)
async def test_its_turn_is_a_dead_letter_with_the_bytes_and_its_neighbours_are_answered(
    store: Store, clock: VirtualClock, request: pytest.FixtureRequest
) -> None:
    answered: list[str] = []

    async def answer(turn: Turn) -> None:
        answered.append(turn.text)

    async with TurnTake(store, role="accept", rules=AT_ONCE, clock=clock) as turns:
        await say(turns, "hello", to="ada")
        for name in NEIGHBOURS:
            await say(turns, name, to=name)
    SPOIL[request.node.callspec.params["store"]](request)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        async with answered_turns(turns, len(NEIGHBOURS) + 1):
            pass
        assert sorted(answered) == sorted(NEIGHBOURS)
        (listed,) = (await store.letters.list(5)).items
        assert (listed.key, listed.reason) == (ADA, "cannot be read")
        letter = await store.letters.get(listed.id)
        assert letter is not None
        (message,) = letter.messages
        assert b64decode(message.metadata[UNREADABLE]).startswith(SPOILT)
        assert await store.history.turns(ADA, 5)
        async with answered_turns(turns, 1):
            await say(turns, "again", to="ada")
            await clock.advance(1)
        assert answered[-1] == "again"
        assert await store.letters.discard(listed.id)
