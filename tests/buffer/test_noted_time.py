"""A store that once saw a time to come: what the doctor says about it, and how it is set right."""

from pathlib import Path

import pytest

from harness.databases import Postgres, Valkey
from turntake.buffer.engine.store import CasStore
from turntake.buffer.open import open_store, store_kind
from turntake.clock import DAY_MS, SystemClock
from turntake.finding import Finding
from turntake.rules.conversation import Answered
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, LEASE_MS, OFF, PLAIN, ids_of, order, say, take

AHEAD_MS = 7 * DAY_MS
NEAR_MS = 60_000  # what a slow machine takes for a test


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store of each kind that outlives a process; only those asked for have their server started."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'turntake.db'}"
    if request.param == "redis":
        valkey: Valkey = request.getfixturevalue("valkey")
        valkey.ask("FLUSHALL")
        return valkey.url
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.database("noted")


async def findings(url: str) -> list[Finding]:
    return [finding async for finding in store_kind(url).examine(url, SystemClock()) if finding.subject == "clock"]


async def reset(url: str) -> int:
    async with open_store(url, SystemClock()) as store:
        assert isinstance(store, CasStore)
        return await store.reset_clock()


async def test_every_deadline_is_set_back_with_the_time(url: str) -> None:
    """What waits, is held or is claimed would else be late by a week; what arrives now comes after what was there."""
    ahead = VirtualClock(SystemClock().wall() + AHEAD_MS)
    slow = Rules(silence_ms=2_000, typing_inference_ms=0)
    async with open_store(url, ahead) as store:
        await say(store, "claimed", key=BOB, rules=OFF)
        await take(store, lease_ms=LEASE_MS)
        await say(store, "m1", "m2", rules=slow)
    assert any("s ahead, since a clock was so once" in each.text for each in await findings(url))
    assert await reset(url) == pytest.approx(AHEAD_MS, abs=NEAR_MS)
    assert [each.level for each in await findings(url)].count("warn") == 0
    assert await reset(url) == 0

    clock = SystemClock()
    async with open_store(url, clock) as store:
        assert clock.now() - clock.wall() < NEAR_MS
        assert (await say(store, "m3", rules=slow)).due_at == pytest.approx(clock.now() + 2_000, abs=1_000)
        await order(store, "flush")
        claim = await take(store)
        assert ids_of(claim) == ["m1", "m2", "m3"]
        await say(store, "m4")
        await store.settle(claim, Answered())
        due_at = await store.next_due()
        assert due_at is not None
        assert due_at == pytest.approx(clock.now() + PLAIN.silence_ms, abs=2_000)
        bob = await store.find(BOB)
        assert bob is not None
        assert bob.conversation.due_at == pytest.approx(clock.now() + LEASE_MS, abs=NEAR_MS)
        ann = await store.find(ANN)
        assert ann is not None
        assert ids_of(ann) == ["m4"]


async def test_a_store_whose_time_is_right_has_nothing_to_set_back(url: str) -> None:
    async with open_store(url, SystemClock()) as store:
        await say(store, "m1")
        due_at = await store.next_due()
    assert await reset(url) == 0
    assert "warn" not in {each.level for each in await findings(url)}
    async with open_store(url, SystemClock()) as store:
        assert await store.next_due() == due_at
