"""Looks into a PostgreSQL store by another client, and empties it."""

from typing import Any

import psycopg

from harness.databases import Postgres
from turntake import Rules
from turntake.buffer.postgres.store import PostgresStore
from turntake.errors import StoreUnavailable
from turntake.rules.key import ConversationKey
from turntake.rules.records import Appended
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import say

EMPTIED = "TRUNCATE turntake.conversations, turntake.messages, turntake.turns; UPDATE turntake.clock SET seen_at = 0"
ROOMY = Rules(capacity=9_999)


def ask(server: Postgres, query: str, *parameters: object) -> list[Any]:
    """Asked beside the store, by another client."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        cursor = connection.execute(query.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []


def key(number: int) -> ConversationKey:
    return ConversationKey.of(f"c{number}")


async def make(server: Postgres) -> None:
    async with PostgresStore.open(server.url, VirtualClock()):
        ask(server, EMPTIED)


async def again(store: PostgresStore, message_id: str) -> Appended:
    """Sent until it is taken."""
    while True:
        try:
            return await say(store, message_id)
        except StoreUnavailable:
            continue


TERMINATE = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
