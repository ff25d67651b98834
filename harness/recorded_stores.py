"""A store with conversations in every state, as a release wrote it, in one file of text for each server.

`python -m harness.recorded_stores FOLDER` records the installed release; tests/recordings/stores/ has earlier ones.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import apsw
import apsw.shell
import psycopg
from psycopg import sql

from harness.databases import Postgres, Valkey
from turntake.buffer.open import open_store
from turntake.buffer.postgres.schema import migrations
from turntake.buffer.store import Store
from turntake.rules.conversation import Answered, Dead, Progress, Retry, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Attachment, Message
from turntake.rules.records import Append, Claim
from turntake.rules.rules import Rules
from turntake.testing.clock import START, VirtualClock

LEASE_MS = 60_000
RETRY_MS = 30_000
STEP_MS = 10_000  # after which whatever was said is due
END_AT = START + 6 * STEP_MS
PLAIN = Rules()
INTERRUPT = Rules(on_busy="interrupt", max_interrupts=1)

SETTLED = ConversationKey.of("settled")
DEAD = ConversationKey.of("dead")
RETRYING = ConversationKey.of("retrying")
INTERRUPTED = ConversationKey.of("interrupted")
LEASED = ConversationKey.of("leased")
REPLYING = ConversationKey.of("replying")
AMENDED = ConversationKey.of("amended")
WAITING = ConversationKey.of("wait{ing}/ü", tenant="acme", channel="whatsapp", account="sales/1", topic="7@ann")
RICH = Message(
    "w1",
    "hé\u0000llo",
    sender="ann",
    sent_at=5,
    attachments=(Attachment("image", "https://x.test/1", caption="look", metadata={"w": 1}),),
    reply_to="w0",
    metadata={"a": [1, None]},
)


async def live(store: Store, clock: VirtualClock) -> None:
    """Ends at END_AT, with every conversation in the state that its name says."""
    claim = await _claimed(store, clock, SETTLED, Message("s1", "hi"), Message("s2", "there"))
    await store.settle(claim, Answered(("fine", "bye")))
    claim = await _claimed(store, clock, DEAD, Message("d1", "hi"), Message("d2"), Message("d3", "hello", amends="d1"))
    await store.settle(claim, Dead("gave_up", "KeyError"))
    await _claimed(store, clock, INTERRUPTED, Message("i1", "one"))
    await store.append([Append(INTERRUPTED, Message("i2", "two"), INTERRUPT)])
    await store.touch(INTERRUPTED, Touch("hold", 10 * LEASE_MS), PLAIN)
    await _claimed(store, clock, LEASED, Message("l1"))
    await store.append([Append(LEASED, Message("l2"), PLAIN)])
    claim = await _claimed(store, clock, REPLYING, Message("p1"))
    await store.save(claim, Progress(("one", "two"), 1, True))
    claim = await _claimed(store, clock, RETRYING, Message("r1"))
    await store.settle(claim, Retry(RETRY_MS, error="TimeoutError"))
    await store.append([Append(WAITING, RICH, PLAIN, "sales"), Append(WAITING, Message("w2"), PLAIN, "sales")])
    changes = (Message("a3", "better", amends="a1"), Message("a4", amends="a2", is_deletion=True))
    for message in (Message("a1", "good"), Message("a2", "oops"), *changes):
        await store.append([Append(AMENDED, message, PLAIN)])
    assert clock.now() == END_AT


async def _claimed(store: Store, clock: VirtualClock, key: ConversationKey, *messages: Message) -> Claim:
    for message in messages:
        await store.append([Append(key, message, INTERRUPT)])
    await clock.advance(STEP_MS)
    (claim,) = await store.claim(1, LEASE_MS)
    assert claim.key == key
    return claim


def redis_text(server: Valkey) -> str:
    """Every key with what it holds; a byte is the character of the same number."""
    with server.client() as client:
        read = {b"hash": client.hgetall, b"zset": lambda name: dict(client.zrange(name, 0, -1, withscores=True))}
        names: list[Any] = sorted(client.keys())
        values = {name: read[kind](name) for name in names if (kind := client.type(name)) in read}
    texts = {_text(name): {_text(k): _text(v) for k, v in value.items()} for name, value in values.items()}
    return json.dumps(texts, indent=1) + "\n"


def load_redis(server: Valkey, text: str) -> None:
    with server.client() as client:
        for name, value in json.loads(text).items():
            if all(isinstance(field, str) for field in value.values()):
                client.hset(_bytes(name), mapping={_bytes(k): _bytes(v) for k, v in value.items()})
            else:
                client.zadd(_bytes(name), {_bytes(k): v for k, v in value.items()})


def postgres_text(server: Postgres) -> str:
    """The migrations as they were, and every row."""
    lines = ["CREATE SCHEMA turntake;", "SET search_path = turntake;"]
    lines += ["CREATE TABLE migrations (name text PRIMARY KEY);", *(migration.text for migration in migrations())]
    lines.append("DELETE FROM clock;")
    with psycopg.connect(server.url) as connection:
        for table in ("migrations", "conversations", "messages", "turns", "clock"):
            query = sql.SQL("SELECT * FROM turntake.{} ORDER BY 1").format(sql.Identifier(table))
            cursor = connection.execute(query)
            assert cursor.description is not None
            columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in cursor.description)
            for row in cursor:
                values = sql.SQL(", ").join(map(sql.Literal, row))
                insert = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({});")
                lines.append(insert.format(sql.Identifier(table), columns, values).as_string(connection))
    lines.append("ALTER TABLE conversations ALTER COLUMN id RESTART WITH 1000;")
    return "\n".join((*lines, ""))


def load_postgres(server: Postgres, text: str) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute(text.encode())


def sqlite_text(path: Path) -> str:
    with tempfile.TemporaryFile("w+") as file:
        connection = apsw.Connection(str(path))
        (version,) = connection.execute("PRAGMA user_version").fetchone() or (0,)
        shell: Any = apsw.shell.Shell(stdout=file, db=connection)
        shell.process_command(".dump")
        connection.close()
        file.seek(0)
        lines = [line for line in file.read().splitlines() if not line.startswith("--")]
    return "\n".join((*lines, f"PRAGMA user_version = {version};", ""))


def load_sqlite(path: Path, text: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(text)
    connection.close()


def _text(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


async def _live_on(url: str) -> None:
    clock = VirtualClock()
    async with open_store(url, clock) as store:
        await live(store, clock)


def record(folder: Path) -> None:
    """Writes sqlite.sql, redis.json and postgres.sql."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        asyncio.run(_live_on(f"sqlite:///{scratch / 'recorded.db'}"))
        (folder / "sqlite.sql").write_text(sqlite_text(scratch / "recorded.db"))
        with Valkey(scratch / "redis", is_safe=False) as valkey:
            asyncio.run(_live_on(valkey.url))
            (folder / "redis.json").write_text(redis_text(valkey))
        with Postgres(scratch / "postgres", is_safe=False) as postgres:
            asyncio.run(_live_on(postgres.url))
            (folder / "postgres.sql").write_text(postgres_text(postgres))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
