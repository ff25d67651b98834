"""What the doctor sees of a PostgreSQL store."""

import psycopg
import pytest

from harness.postgres_store import ask, findings, says
from turntake.buffer.postgres.backend import PostgresStore
from turntake.buffer.postgres.examine import MANY_DEAD_ROWS, bloat
from turntake.buffer.postgres.schema import migrations
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import say


async def test_the_doctor_looks_a_new_database_over_and_changes_nothing(new: str) -> None:
    found = await findings(new)
    assert says(found, "schema", "ok") == "turntake will be created at the next start"
    assert "fsync, full_page_writes off" in says(found, "durability", "warn")
    assert not [finding for finding in found if finding.level == "fail"]
    assert ask(new, "SELECT to_regnamespace('turntake')") == [(None,)]


async def test_the_doctor_sees_bloat_snapshots_connections_and_the_clock(new: str, clock: VirtualClock) -> None:
    """What an operator must know before it hurts."""
    async with PostgresStore.open(new, clock) as store:
        await say(store, "m1")
    with psycopg.connect(new) as old:
        old.execute("SELECT 1")
        found = await findings(new)
    assert says(found, "schema", "ok") == f"turntake is at {migrations()[-1].name}"
    assert "conversations: " in says(found, "bloat", "ok")
    assert "messages: " in says(found, "bloat", "ok")
    assert "the longest open transaction is 0 s old" in says(found, "snapshots", "ok")
    assert " of 200 in use" in says(found, "connections", "ok")
    assert "server's clock" in says(found, "clock", "ok")


@pytest.mark.parametrize(
    ("live", "dead", "level"),
    [(MANY_DEAD_ROWS, MANY_DEAD_ROWS + 1, "warn"), (0, MANY_DEAD_ROWS, "ok"), (10**6, 10**6, "ok")],
)
def test_the_doctor_warns_of_a_table_with_more_dead_rows_than_living_ones(live: int, dead: int, level: str) -> None:
    """A few are always there, and a large table may have many."""
    assert bloat("messages", live, dead, None).level == level


async def test_the_doctor_warns_of_old_snapshots_and_full_servers(
    new: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limits brought down to what a test can reach."""
    for name, value in (
        ("LONG_TRANSACTION_MS", -1),
        ("CONNECTIONS_USED", 0.0),
        ("MANY_DEAD_ROWS", -2),
        ("SKEW_MS", -1),
    ):
        monkeypatch.setattr(f"turntake.buffer.postgres.examine.{name}", value)
    found = await findings(new)
    assert "dead rows pile up" in says(found, "snapshots", "warn")
    assert says(found, "connections", "warn")
    assert "goes by the server's" in says(found, "clock", "warn")


async def test_the_doctor_says_what_fails(new: str) -> None:
    """A server that is away, one that takes no writes, a URL that is wrong: findings, and never a password."""
    ask(new, "ALTER DATABASE fresh SET default_transaction_read_only = on")
    assert "nothing can be accepted" in says(await findings(new), "store", "fail")
    for bad in ("postgresql://ann:secret@127.0.0.1:1/shop", "postgresql://ann:secret@db/shop?schema=A"):
        (finding,) = await findings(bad)
        assert finding.level == "fail"
        assert "secret" not in finding.text
