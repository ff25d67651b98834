"""Several processes on one file."""

import asyncio
import os
from pathlib import Path

import pytest

from harness.writing import ROOMY, everything_ran
from turntake.buffer.engine import draft
from turntake.buffer.sqlite import commit_thread, schema
from turntake.buffer.sqlite.backend import SqliteStore
from turntake.buffer.sqlite.schema import connect
from turntake.buffer.store import Hint
from turntake.rules.conversation import Answered
from turntake.rules.key import ConversationKey
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import (
    ANN,
    BOB,
    LEASE_MS,
    OFF,
    ids_of,
    open_ids,
    say,
    take,
)


async def test_two_stores_on_one_file_keep_the_promises(path: str, clock: VirtualClock) -> None:
    """Two processes take turns message by message: numbers have no holes, ids are known, claims are fenced."""
    async with SqliteStore(path, clock) as one, SqliteStore(path, clock) as other:
        for number in range(10):
            await say(one if number % 2 else other, f"m{number}")
        assert (await say(one, "m0")).status == "duplicate"
        await clock.advance(30_000)
        claim = await take(other)
        assert [message.seq for message in claim.messages] == list(range(1, 11))
        assert await one.claim(5, LEASE_MS) == []
        await say(one, "late")
        assert await one.settle(claim, Answered())
        assert await other.settle(claim, Answered())
        assert await open_ids(other) == ["late"]


async def test_two_stores_on_one_file_at_once_lose_nothing_and_claim_once(path: str, clock: VirtualClock) -> None:
    """Two processes write and claim at the same time."""
    keys = [ConversationKey.of(f"c{number}") for number in range(20)]
    async with SqliteStore(path, clock) as one, SqliteStore(path, clock) as other:
        for store in (one, other):
            await store.next_due()
        await asyncio.gather(*(say(store, f"{n}", key=key) for key in keys for n, store in enumerate((one, other))))
        await clock.advance(30_000)
        claims = await asyncio.gather(*(store.claim(3, LEASE_MS) for store in (one, other) for _ in range(10)))
        taken = [claim for some in claims for claim in some]
        assert sorted(str(claim.key) for claim in taken) == sorted(map(str, keys))
        assert all(sorted(ids_of(claim)) == ["0", "1"] for claim in taken)


async def test_whoever_waits_for_the_file_goes_before_whoever_comes_later(path: str, clock: VirtualClock) -> None:
    """A process that writes without a pause would otherwise begin anew each time before the other looks again."""
    async with SqliteStore(path, clock) as waits, SqliteStore(path, clock) as writes:
        for number in range(10):
            holder = connect(path)
            holder.execute("BEGIN IMMEDIATE")
            done: list[str] = []
            first = asyncio.ensure_future(say(waits, f"m{number}", key=ANN, rules=ROOMY))
            first.add_done_callback(lambda _, done=done: done.append("waits"))  # type: ignore[misc]
            await everything_ran()
            second = asyncio.ensure_future(say(writes, f"m{number}", key=BOB, rules=ROOMY))
            second.add_done_callback(lambda _, done=done: done.append("writes"))  # type: ignore[misc]
            await everything_ran()
            holder.execute("COMMIT")
            holder.close()
            await asyncio.gather(first, second)
            assert done == ["waits", "writes"]


async def test_a_process_that_is_stopped_in_the_turnstile_is_passed_by(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds nothing that anybody needs."""
    monkeypatch.setattr(commit_thread, "TURNSTILE_MS", 5)
    async with SqliteStore(path, clock) as stopped, SqliteStore(path, clock) as other:
        assert stopped.backend._turnstile.enter()
        assert (await say(other, "m1")).status == "buffered"


async def test_a_message_that_one_process_accepts_wakes_another(path: str, tmp_path: Path, clock: VirtualClock) -> None:
    """`--role accept` and `--role work` on one file: the deadline is heard of, and not found a second later."""
    async with SqliteStore(path, clock) as accepts, SqliteStore(path, clock) as works:
        hints = works.backend.hints.listen()
        heard = asyncio.ensure_future(anext(hints))
        await everything_ran()
        said = await say(accepts, "m1", rules=OFF)
        hint = await asyncio.wait_for(heard, 5)
        assert hint.due_at == said.due_at
        heard = asyncio.ensure_future(anext(hints))
        await everything_ran()
        heard.cancel()
        await asyncio.wait([heard])
    assert os.listdir(tmp_path) == ["turntake.db"]


async def test_the_pipe_of_a_process_that_died_is_taken_away(path: str, tmp_path: Path, clock: VirtualClock) -> None:
    """And one that cannot be written to costs nobody's message."""
    os.mkfifo(f"{path}-hints-dead")
    async with SqliteStore(path, clock) as store:
        assert (await say(store, "m1", rules=OFF)).status == "buffered"
        assert "turntake.db-hints-dead" not in os.listdir(tmp_path)


async def test_a_start_waits_for_a_process_that_migrates_a_large_file(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, and opens once the file is free."""
    async with SqliteStore(path, clock):
        pass
    monkeypatch.setattr(schema, "START_BUSY_MS", 1)
    migrating = connect(path)
    migrating.execute("BEGIN IMMEDIATE")
    opening = asyncio.ensure_future(SqliteStore(path, clock).__aenter__())
    while "Another process holds the SQLite file" not in caplog.text:
        await asyncio.wait([opening], timeout=0)
    migrating.execute("COMMIT")
    migrating.close()
    store = await opening
    assert (await say(store, "m1")).status == "buffered"
    await store.__aexit__(None, None, None)


async def test_a_number_that_another_conversation_has_by_now_is_no_way_to_it(
    path: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process remembers a conversation that another one forgot since, whose number went to somebody else. Even if
    the versions agree, which takes a chance of one in a million, nothing is written there."""
    monkeypatch.setattr(draft, "getrandbits", lambda bits: 7)
    async with SqliteStore(path, clock) as one, SqliteStore(path, clock) as other:
        await say(one, "m1", rules=OFF)
        await one.settle(await take(one), Answered())
        await clock.advance(1)
        assert await other.history.forget(clock.now()) == 1
        await say(other, "b1", key=BOB, rules=OFF)
        claim = await take(other)
        assert await other.extend([claim], LEASE_MS) == [True]
        before = await other.find(BOB)
        assert (await say(one, "m2")).seq == 1
        assert await other.find(BOB) == before
        assert await open_ids(one) == ["m2"]


async def test_word_of_many_interruptions_comes_in_several_lines(path: str, clock: VirtualClock) -> None:
    """A pipe takes 512 bytes in one piece: none of a hundred is dropped for that."""
    stopped = tuple((f"default:generic:default:p{number}", f"turn_{number:032}", number) for number in range(100))
    offered = tuple(f"default:generic:default:q{number}" for number in range(7))
    async with SqliteStore(path, clock) as one, SqliteStore(path, clock) as other:
        hints = other.backend.hints.listen()
        heard = asyncio.ensure_future(anext(hints))
        await everything_ran()
        await one.backend.hints.publish(Hint(5, stopped, offered=offered))
        said = [await asyncio.wait_for(heard, 5)]
        while sum(len(hint.interrupted) for hint in said) < len(stopped):
            said.append(await asyncio.wait_for(anext(hints), 5))
        assert tuple(each for hint in said for each in hint.interrupted) == stopped
        assert tuple(each for hint in said for each in hint.offered) == offered
        last = asyncio.ensure_future(anext(hints))
        await everything_ran()
        last.cancel()
        await asyncio.wait([last])


async def test_a_message_that_may_be_absorbed_is_announced_to_others(path: str, clock: VirtualClock) -> None:
    """To whoever answers, in whichever process."""
    steer = Rules(on_busy="steer", silence_ms=0, typing_inference_ms=0)
    async with SqliteStore(path, clock) as accepts, SqliteStore(path, clock) as works:
        await say(accepts, "m1", rules=steer)
        await take(works)
        hints = works.backend.hints.listen()
        heard = asyncio.ensure_future(anext(hints))
        await everything_ran()
        await clock.advance(2_000)
        await say(accepts, "m2", rules=steer)
        while not (hint := await asyncio.wait_for(heard, 5)).offered:
            heard = asyncio.ensure_future(anext(hints))
        assert hint.offered == (str(ANN),)
