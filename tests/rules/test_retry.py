"""After a failure: again when, or dead letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from turntake.rules.conversation import Answered, Dead, Progress, Retry, SealedTurn
from turntake.rules.deadline import Deadline
from turntake.rules.retry import (
    FIRST_DELAY_MS,
    LONGEST_DELAY_MS,
    Setback,
    after_failure,
    after_postponement,
    after_setback,
    backoff_ms,
    before_attempt,
)
from turntake.rules.rules import Rules

TURN = SealedTurn("turn_x", 1, 1, Deadline(0, "silence"), 0, 0, 0, ())
RULES = Rules(max_attempts=3, ttl_ms=10_000)


@pytest.mark.parametrize(
    ("failures", "chance", "expected"),
    [(1, 0.0, 500), (1, 0.5, 750), (2, 0.0, 1_000), (3, 0.0, 2_000), (7, 0.0, 30_000), (100, 0.0, 30_000)],
)
def test_the_pause_doubles_up_to_a_minute(failures: int, chance: float, expected: int) -> None:
    """Half of it is fixed, the other half is chance."""
    assert backoff_ms(failures, chance) == expected


@given(st.integers(1, 1_000), st.floats(0, 1, exclude_max=True))
def test_the_pause_has_bounds(failures: int, chance: float) -> None:
    """Never at once, never for ever."""
    assert FIRST_DELAY_MS / 2 <= backoff_ms(failures, chance) <= LONGEST_DELAY_MS


def test_a_failure_is_retried_with_a_pause() -> None:
    """The error travels with the turn."""
    assert after_failure(TURN, RULES, "boom", 0, 0.0) == Retry(500, error="boom")
    assert after_failure(replace(TURN, failures=1), RULES, "boom", 0, 0.0) == Retry(1_000, error="boom")


def test_the_last_failure_is_a_dead_letter() -> None:
    """`max_attempts` counts this one."""
    assert after_failure(replace(TURN, failures=2), RULES, "boom", 0, 0.0) == Dead("failed 3 times", "boom")


@pytest.mark.parametrize(("now", "is_retry"), [(9_500, True), (9_501, False)])
def test_a_retry_beyond_the_time_to_live_is_a_dead_letter(now: int, is_retry: bool) -> None:
    """What could only be tried after `ttl_ms` expires at once."""
    settlement = after_failure(TURN, RULES, "boom", now, 0.0)
    assert settlement == (Retry(500, error="boom") if is_retry else Dead("expired", "boom"))


def test_a_postponement_is_no_failure() -> None:
    """The wish of the agent is kept, but it cannot be called in a circle."""
    assert after_postponement(TURN, RULES, 7_000, "", 0) == Retry(7_000, is_failure=False)
    assert after_postponement(TURN, RULES, 0, "", 0) == Retry(500, is_failure=False)


def test_a_postponement_beyond_the_time_to_live_expires() -> None:
    """A rate limit cannot keep a turn for ever."""
    assert after_postponement(TURN, RULES, 10_001, "", 0) == Dead("expired", "Nobody could deliver it in time.")


def test_a_turn_whose_workers_all_died_is_not_tried_again() -> None:
    """Each expired lease was a failure, so a poisonous turn stops after `max_attempts`."""
    assert before_attempt(replace(TURN, failures=2), RULES) is None
    dead = before_attempt(replace(TURN, failures=3), RULES)
    assert dead == Dead("failed 3 times", "The worker stopped during every attempt.")
    assert before_attempt(replace(TURN, failures=3, error="boom"), RULES) == Dead("failed 3 times", "boom")


@pytest.mark.parametrize(
    ("turn", "is_empty", "expected"),
    [
        pytest.param(replace(TURN, amendments=1), True, Answered(), id="all deleted"),
        pytest.param(replace(TURN, amendments=1, failures=3), True, Answered(), id="also after failures"),
        pytest.param(replace(TURN, amendments=1), False, None, id="something is left"),
        pytest.param(replace(TURN, amendments=1, progress=Progress(("one",))), True, None, id="an answer is under way"),
        pytest.param(TURN, True, None, id="nobody deleted anything: they are missing"),
    ],
)
def test_a_turn_whose_messages_were_all_deleted_is_settled_without_the_agent(
    turn: SealedTurn, is_empty: bool, expected: Answered | None
) -> None:
    assert before_attempt(turn, RULES, is_empty) == expected


@pytest.mark.parametrize(
    ("setback", "settlement"),
    [
        (Setback("failed", "boom"), Retry(2_000, error="boom")),
        (Setback("put off", "busy", 4_000), Retry(4_000, is_failure=False, error="busy")),
        (Setback("put off", "busy", 0), Retry(500, is_failure=False, error="busy")),
        (Setback("given up", "never"), Dead("given up", "never")),
    ],
)
def test_each_kind_of_setback_has_its_own_end(setback: Setback, settlement: Retry | Dead) -> None:
    turn = replace(TURN, failures=2)
    assert after_setback(turn, Progress(), Rules(max_attempts=9), setback, 0, 0.0) == settlement


def test_sending_has_attempts_of_its_own() -> None:
    """The answer was saved in this attempt: the agent's failures no longer count, those of sending do."""
    saved, setback = Progress(("hello",), is_final=True), Setback("failed", "boom")
    asked_twice = replace(TURN, failures=2)
    assert after_setback(asked_twice, Progress(), RULES, setback, 0, 0.0) == Dead("failed 3 times", "boom")
    assert after_setback(asked_twice, saved, RULES, setback, 0, 0.0) == Retry(500, error="boom")
    sent_twice = replace(TURN, failures=2, progress=saved)
    assert after_setback(sent_twice, saved, RULES, setback, 0, 0.0) == Dead("failed 3 times", "boom")
