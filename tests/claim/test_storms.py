"""Storms of messages during the answer: a hundred people, each of whom writes ten times more, and two workers.

The log of each is judged by `harness/storm_checker.py`, which knows nothing of turntake.
"""

import asyncio
from random import Random
from typing import Literal

import pytest
from msgspec.structs import replace

from harness.storm import SILENCE_MS, THINKING_MS, Storm, all_disturbed, two_workers
from harness.storm_checker import Line, broken
from turntake import Rules
from turntake.buffer.memory import MemoryStore
from turntake.testing.clock import VirtualClock

PEOPLE, TIMES = 100, 10
QUICK = Rules(silence_ms=SILENCE_MS, typing_inference_ms=0, max_wait_ms=60_000)


async def log_of(rules: Rules, seed: int, most_ms: int = THINKING_MS) -> list[Line]:
    """What happens if everybody writes again within `most_ms`, and is answered in the end."""
    clock, chance = VirtualClock(), Random(seed)
    store, storm = MemoryStore(clock), Storm(clock, chance)
    agent = storm.steered if rules.on_busy == "steer" else storm.think
    async with two_workers([store, store], storm, agent, rules, clock) as workers:
        people = asyncio.ensure_future(all_disturbed(workers, storm, PEOPLE, TIMES, most_ms))
        while not people.done():
            await clock.advance(50)
        await clock.advance(60_000)
    return storm.log


@pytest.mark.parametrize("seed", range(2))
async def test_everybody_who_interrupts_gets_one_answer_to_everything(seed: int) -> None:
    log = await log_of(replace(QUICK, on_busy="interrupt", max_interrupts=TIMES), seed)
    assert broken(log, most_runs=1 + TIMES, answers=1, leaves_nothing_out=True) == []


@pytest.mark.parametrize("seed", range(2))
async def test_an_answer_is_interrupted_no_more_often_than_it_may_be(seed: int) -> None:
    log = await log_of(replace(QUICK, on_busy="interrupt", max_interrupts=3), seed)
    assert broken(log, most_runs=4) == []


@pytest.mark.parametrize("seed", range(2))
async def test_everybody_who_steers_gets_one_answer_to_everything(seed: int) -> None:
    """Some runs fail after they absorbed messages: the next one has them too."""
    log = await log_of(replace(QUICK, on_busy="steer"), seed)
    assert broken(log, most_runs=2, answers=1, leaves_nothing_out=True) == []
    assert sum(line.kind == "began" for line in log) > PEOPLE


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("limit", "answers"), [(TIMES, 1), (2, None)])
async def test_answers_that_are_stale_are_given_anew(seed: int, limit: int, answers: int | None) -> None:
    log = await log_of(replace(QUICK, on_stale="regenerate", max_interrupts=limit), seed)
    assert broken(log, most_runs=1 + limit, answers=answers) == []


@pytest.mark.parametrize("on_busy", ["queue", "reject"])
async def test_who_writes_meanwhile_waits_or_is_rejected(on_busy: Literal["queue", "reject"]) -> None:
    """Whatever is not rejected is answered once."""
    log = await log_of(replace(QUICK, on_busy=on_busy, busy_text=""), seed=1)
    assert broken(log, most_runs=1) == []
    assert any(line.kind == "rejected" for line in log) == (on_busy == "reject")
