"""Looks into a PostgreSQL store by another client, and empties it."""

from typing import Any

import psycopg

from harness.databases import Postgres
from turntake.buffer.postgres.backend import PostgresStore
from turntake.clock import SystemClock
from turntake.finding import Finding
from turntake.testing.clock import VirtualClock

TABLES = "turntake.conversations, turntake.messages, turntake.turns, turntake.documents"
EMPTIED = f"TRUNCATE {TABLES}; UPDATE turntake.clock SET seen_at = 0"


def ask(url: str, query: str, *parameters: object) -> list[Any]:
    """FakeRequest beside the store, by another client."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []


async def make(server: Postgres) -> None:
    """The tables are there, and empty."""
    async with PostgresStore.open(server.url, VirtualClock()):
        ask(server.url, EMPTIED)


TERMINATE = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


def empty(url: str) -> None:
    """Emptying tables is much faster than making them."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT to_regclass('turntake.clock') IS NOT NULL").fetchone()
        if found and found[0]:
            connection.execute(EMPTIED)


async def findings(url: str) -> list[Finding]:
    """What the doctor finds there."""
    return [finding async for finding in PostgresStore.examine(url, SystemClock())]


def says(found: list[Finding], subject: str, level: str = "") -> str:
    """All that is said about a subject, at a level or at any."""
    return " ".join(finding.text for finding in found if finding.subject == subject and level in ("", finding.level))
