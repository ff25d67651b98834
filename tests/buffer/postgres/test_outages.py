"""Servers that end connections, fall silent, say no or die: nothing is lost, and the store goes on by itself."""

import asyncio
from pathlib import Path

import psycopg
import pytest

from harness.databases import Postgres
from harness.postgres_store import ROOMY, TERMINATE, again, ask, key, make
from harness.proxy import proxying
from turntake.buffer.postgres import pool
from turntake.buffer.postgres.backend import PostgresStore
from turntake.errors import StoreUnavailable
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import say


async def test_a_terminate_storm_loses_nothing_and_repeats_nothing(server: Postgres, store: PostgresStore) -> None:
    """Every backend is ended again and again under load; what was acknowledged is there once."""
    acknowledged: list[str] = []
    refused = 0

    async def write(writer: int) -> None:
        nonlocal refused
        for number in range(60):
            message_id = f"{writer}-{number}"
            while True:
                try:
                    await say(store, message_id, key=key(writer % 5), rules=ROOMY)
                    break
                except StoreUnavailable:
                    refused += 1
            acknowledged.append(message_id)

    writing = asyncio.gather(*(write(writer) for writer in range(20)))
    storms = 0
    while not writing.done():
        await asyncio.to_thread(ask, server.url, TERMINATE)
        storms += 1
        await asyncio.wait([writing], timeout=0.03)
    await writing
    assert storms > 3
    stored = [bytes(row[0]).decode() for row in ask(server.url, "SELECT id FROM turntake.messages")]
    assert sorted(stored) == sorted(acknowledged)
    numbers = ask(
        server.url, "SELECT count(*) = max(seq) AND min(seq) = 1 FROM turntake.messages GROUP BY conversation"
    )
    assert numbers == [(True,)] * 5


async def test_a_server_that_falls_silent_is_given_up_and_found_again(
    server: Postgres, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No caller waits for ever, and nothing was accepted."""
    await make(server)
    monkeypatch.setattr(pool, "SILENCE_MS", 300)
    monkeypatch.setattr(pool, "WAIT_MS", 300)
    with proxying(server.port) as proxy:
        url = server.url.replace(str(server.port), str(proxy.port))
        async with PostgresStore.open(url, clock) as store:
            await say(store, "m1")
            proxy.blackhole()
            with pytest.raises(StoreUnavailable, match="send it again"):
                await say(store, "m2")
            proxy.heal()
            assert (await again(store, "m2")).waiting == 2


async def test_a_read_only_server_takes_nothing_and_says_so(server: Postgres, clock: VirtualClock) -> None:
    """As after a failover, when connections still lead to the old primary; reads go on."""
    async with PostgresStore.open(server.database("protected"), clock) as store:
        await say(store, "m1")
        ask(server.url, "ALTER DATABASE protected SET default_transaction_read_only = on")
        ask(server.url, TERMINATE)
        with pytest.raises(StoreUnavailable, match="read-only"):
            await say(store, "m2")
        assert await store.next_due() is not None
        ask(server.url, "ALTER DATABASE protected RESET ALL")
        assert (await again(store, "m2")).waiting == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [("53100", StoreUnavailable), ("53300", StoreUnavailable), ("40P01", StoreUnavailable), ("P0001", psycopg.Error)],
)
async def test_what_will_pass_is_told_from_what_is_wrong(
    server: Postgres, store: PostgresStore, code: str, kind: type[Exception]
) -> None:
    """A full disk is no fault of ours; an error in a statement is, and hiding it would help nobody."""
    ask(server.url, FAILING.format(code=code))
    try:
        with pytest.raises(kind) as caught:
            await say(store, "m1")
        assert isinstance(caught.value, StoreUnavailable) == (kind is StoreUnavailable)
    finally:
        ask(server.url, "DROP TRIGGER failing ON turntake.messages")
    assert (await say(store, "m1")).status == "buffered"


FAILING = """
CREATE OR REPLACE FUNCTION turntake.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no' USING ERRCODE = '{code}';
END $$;
CREATE TRIGGER failing BEFORE INSERT ON turntake.messages FOR EACH STATEMENT EXECUTE FUNCTION turntake.fail()
"""


async def test_a_killed_server_comes_back_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    """kill -9 in the middle of writes, children too; no message is lost or doubled, and the store goes on by itself."""
    acknowledged: list[str] = []
    with Postgres(tmp_path) as server:
        async with PostgresStore.open(server.url, VirtualClock()) as store:

            async def write(writer: int) -> None:
                number = 0
                while not is_over:
                    number += 1
                    try:
                        await say(store, f"{writer}-{number}", key=key(writer % 4), rules=ROOMY)
                        acknowledged.append(f"{writer}-{number}")
                    except StoreUnavailable:
                        continue

            is_over = False
            writing = asyncio.gather(*(write(writer) for writer in range(8)))
            for _ in range(2):
                before = len(acknowledged)
                while len(acknowledged) < before + 100:
                    await asyncio.wait([writing], timeout=0.01)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            before = len(acknowledged)
            while len(acknowledged) < before + 20:
                await asyncio.wait([writing], timeout=0.01)
            is_over = True
            await writing
        stored = [bytes(row[0]).decode() for row in ask(server.url, "SELECT id FROM turntake.messages")]
    assert len(set(stored)) == len(stored)
    assert set(acknowledged) <= set(stored)
