"""Documents when a reply is lost: what was asked for has happened, and nobody is told."""

import pytest

from harness.databases import Postgres, Valkey
from harness.proxy import proxying
from turntake.buffer.documents import Document
from turntake.buffer.postgres.backend import PostgresStore
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.scripts import SWAP_DOCUMENT
from turntake.errors import StoreUnavailable
from turntake.testing.clock import VirtualClock


async def test_a_swap_whose_reply_redis_lost_is_made_once_and_was_ours(valkey: Valkey, clock: VirtualClock) -> None:
    """redis-py sends it again by itself; the script knows the call."""
    valkey.ask("FLUSHALL")
    valkey.ask("SCRIPT", "LOAD", SWAP_DOCUMENT._text)
    with proxying(valkey.port) as proxy:
        async with RedisStore.open(valkey.url.replace(str(valkey.port), str(proxy.port)), clock) as store:
            for version in range(2):
                proxy.drop_next_reply()
                assert await store.documents.swap("rules", version, b"ours")
            assert await store.documents.read("rules") == Document(2, b"ours")


async def test_a_swap_whose_reply_postgresql_lost_is_made_once_and_was_ours(
    postgres: Postgres, clock: VirtualClock
) -> None:
    """The pool sends it again; the row knows who wrote it."""
    url = postgres.database("documents")
    with proxying(postgres.port) as proxy:
        async with PostgresStore.open(url.replace(str(postgres.port), str(proxy.port)), clock) as store:
            for version in range(2):
                await store.documents.read("rules")
                proxy.drop_next_reply()
                assert await store.documents.swap("rules", version, b"ours")
            assert await store.documents.read("rules") == Document(2, b"ours")


async def test_a_swap_that_too_few_replicas_have_is_not_acknowledged(valkey: Valkey, clock: VirtualClock) -> None:
    """As with messages: whoever asked for replicas is not told that a change stands which a failover would take."""
    valkey.ask("FLUSHALL")
    async with RedisStore.open(f"{valkey.url}?wait=1&wait_ms=1", clock) as store:
        with pytest.raises(StoreUnavailable, match="Too few replicas"):
            await store.documents.swap("rules", 0, b"ours")
        assert not await store.documents.swap("rules", 0, b"ours")
