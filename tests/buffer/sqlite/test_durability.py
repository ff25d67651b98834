"""What an acknowledgement means: the commit is on the disk, and whoever comes next finds it."""

import shutil
from pathlib import Path

import apsw
import pytest

from harness.writing import ROOMY
from turntake.buffer.sqlite import checkpoints
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Answered, Dead
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import (
    ANN,
    LEASE_MS,
    OFF,
    open_ids,
    say,
    take,
)

FULL = 2  # what SQLite calls `PRAGMA synchronous = FULL`: a commit returns after the log was synced


async def test_a_commit_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    """Every connection of an open store; with less, a machine that loses power loses what it acknowledged."""
    path = tmp_path / "turntake.db"
    async with SqliteStore(str(path), VirtualClock()) as store:
        await say(store, "m1")
        ours = [each for each in apsw.connections() if Path(each.filename) == path]
        assert ours
        for connection in ours:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA synchronous").fetchone() == (FULL,)


async def test_a_commit_that_fails_acknowledges_nothing(path: str, clock: VirtualClock) -> None:
    """Only what is on disk is answered; the store goes on with the next transaction."""
    async with SqliteStore(path, clock) as store:
        store.backend._writer.set_commit_hook(lambda: True)
        with pytest.raises(StoreUnavailable):
            await say(store, "m1")
        store.backend._writer.set_commit_hook(None)
        assert await store.find(ANN) is None
        assert (await say(store, "m1")).status == "buffered"


def size(path: str) -> int:
    return Path(path).stat().st_size


async def test_the_log_does_not_grow_for_as_long_as_the_store_is_open(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is `CHECKPOINT_PAGES` long, it is copied into the database and written anew from its start."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_PAGES", 50)
    async with SqliteStore(path, clock) as store:
        (page_bytes,) = store.backend._writer.execute("PRAGMA page_size").fetchone() or (0,)
        before = size(path)
        for number in range(200):
            await say(store, f"m{number}", rules=ROOMY)
        assert size(f"{path}-wal") < 100 * page_bytes
        assert size(path) > before


async def test_what_a_killed_process_leaves_is_complete(path: str, clock: VirtualClock, tmp_path: Path) -> None:
    """The files as they are at that moment, never closed, hold every answer that was given."""
    remains = tmp_path / "remains"
    remains.mkdir()
    async with SqliteStore(path, clock) as store:
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await say(store, "m2")
        for suffix in ("", "-wal"):
            shutil.copy(path + suffix, remains / f"turntake.db{suffix}")
    async with SqliteStore(str(remains / "turntake.db"), clock) as recovered:
        assert await open_ids(recovered) == ["m1", "m2"]
        await clock.advance(LEASE_MS)
        again = await take(recovered)
        assert (again.turn.id, again.messages) == (claim.turn.id, claim.messages)
        assert not await recovered.settle(claim, Answered())


def killed(path: str, to: Path) -> str:
    """The files as a process that was killed at this moment leaves them."""
    to.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(path + suffix, to / f"turntake.db{suffix}")
    return str(to / "turntake.db")


async def test_the_only_process_takes_up_at_once_what_it_held_when_it_was_killed(
    path: str, clock: VirtualClock, tmp_path: Path
) -> None:
    """Nobody else has the file open, so nobody else can hold those leases. They count as lapses, like any that end."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m1", rules=OFF)
        held = await take(store)
        remains = killed(path, tmp_path / "remains")
        async with SqliteStore(remains, clock) as successor:
            again = await take(successor)
            assert (again.turn.id, again.turn.attempt, again.turn.lapses) == (held.turn.id, 2, 1)
            assert not await successor.settle(held, Answered())


async def test_what_an_agent_promised_to_complete_is_left_to_it(path: str, clock: VirtualClock, tmp_path: Path) -> None:
    """It was asked by a process that died, and may be well itself."""
    async with SqliteStore(path, clock) as store:
        await say(store, "m1", rules=OFF)
        await store.extend([await take(store)], LEASE_MS, "promised")
        remains = killed(path, tmp_path / "remains")
        async with SqliteStore(remains, clock) as successor:
            assert await successor.claim(5, LEASE_MS) == []


async def test_a_lease_stays_while_any_other_process_has_the_file_open(path: str, clock: VirtualClock) -> None:
    """It may be the one that holds it."""
    hanging = await SqliteStore(path, clock).__aenter__()
    await say(hanging, "m1", rules=OFF)
    await take(hanging)
    async with SqliteStore(path, clock) as other:
        assert await other.claim(5, LEASE_MS) == []
    await hanging.__aexit__(None, None, None)


async def test_a_store_that_was_never_closed_is_no_obstacle(path: str, clock: VirtualClock) -> None:
    """A successor opens the file beside a process that hangs, and fences it."""
    hanging = await SqliteStore(path, clock).__aenter__()
    await say(hanging, "m1", rules=OFF)
    stale = await take(hanging)
    async with SqliteStore(path, clock) as successor:
        await clock.advance(LEASE_MS)
        assert await successor.settle(await take(successor), Answered())
        assert not await hanging.settle(stale, Dead("late"))
        assert await open_ids(hanging) == []
    await hanging.__aexit__(None, None, None)
