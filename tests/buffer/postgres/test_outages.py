"""Servers that end connections, fall silent, say no or die: nothing is lost, and the store goes on by itself."""

import asyncio
from pathlib import Path

import psycopg
import pytest

from harness.databases import Postgres
from harness.postgres_store import TERMINATE, ask, make
from harness.proxy import proxying
from harness.writing import Writers, again, written_while_killed
from turntake.buffer.postgres import pool
from turntake.buffer.postgres.backend import PostgresStore
from turntake.errors import StoreUnavailable
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import say


async def test_a_terminate_storm_loses_nothing_and_repeats_nothing(server: Postgres, store: PostgresStore) -> None:
    """Every backend is ended again and again under load; what was acknowledged is there once."""
    writers = Writers(store)
    for _ in range(20):
        await asyncio.to_thread(ask, server.url, TERMINATE)
        await writers.acknowledged.more(40)
    await writers.stop()
    stored = [bytes(row[0]).decode() for row in ask(server.url, "SELECT id FROM turntake.messages")]
    assert sorted(stored) == sorted(writers.acknowledged.ids)
    numbers = ask(
        server.url, "SELECT count(*) = max(seq) AND min(seq) = 1 FROM turntake.messages GROUP BY conversation"
    )
    assert numbers == [(True,)] * 4


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


async def test_a_transaction_that_the_server_undid_is_made_again_on_the_same_connections(
    server: Postgres, store: PostgresStore
) -> None:
    """As a database with a stricter isolation does to one of two that meet. The server is well, so nobody hangs up."""
    await say(store, "m1")
    before = ask(server.url, SESSIONS)
    ask(server.url, UNDOING)
    try:
        assert (await say(store, "m2")).waiting == 2
    finally:
        ask(server.url, "DROP TRIGGER undoing ON turntake.messages; DROP SEQUENCE turntake.undone")
    # On a busy machine the pool may have made one more meanwhile.
    assert set(before) <= set(ask(server.url, SESSIONS))


SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'turntake' ORDER BY pid"

UNDOING = """
CREATE SEQUENCE turntake.undone;
CREATE OR REPLACE FUNCTION turntake.undo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('turntake.undone') <= 5 THEN
        RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER undoing BEFORE INSERT ON turntake.messages FOR EACH ROW EXECUTE FUNCTION turntake.undo()
"""


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
    with Postgres(tmp_path) as server:
        async with PostgresStore.open(server.url, VirtualClock()) as store:
            acknowledged = await written_while_killed(server, store)
        stored = [bytes(row[0]).decode() for row in ask(server.url, "SELECT id FROM turntake.messages")]
    assert sorted(stored) == sorted(acknowledged)
